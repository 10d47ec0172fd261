//! Times as people read them.

use base::WallTime;

const DAY_S: u64 = 24 * 3_600;

/// In UTC, to the millisecond: `2026-11-24 07:15:01.123`.
pub(crate) fn utc(time: WallTime) -> String {
    let (seconds, millis) = (time.as_micros() / 1_000_000, time.as_micros() / 1_000 % 1_000);
    let (day, second) = (seconds / DAY_S, seconds % DAY_S);
    let (year, month, day) = date(day);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
}

/// The date so many days after 1970-01-01. Years are counted from March on, so that a leap day is the last of its year.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (951_868_799, "2000-02-29 23:59:59.000"),
            (951_868_800, "2000-03-01 00:00:00.000"),
            (1_798_761_599, "2026-12-31 23:59:59.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
        ] {
            assert_eq!(utc(WallTime::from_micros(seconds * 1_000_000)), expected);
        }
        assert_eq!(utc(WallTime::from_micros(1_999)), "1970-01-01 00:00:00.001");
    }
}
