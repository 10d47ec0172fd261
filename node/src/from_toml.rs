//! Settings that people write, from text to a checked type.

use serde::de::DeserializeOwned;

/// More of a line helps nobody to find it.
const LINE_SHOWN_CHARS: usize = 80;

/// Reads TOML. The message of an error names the line, shows it, and says what to do, all in one line.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let what = error.message();
        let is_missing = what.starts_with("missing field");
        let advice = if is_missing { "add the key" } else { "correct or remove the line" };
        // What is missing at the top stands nowhere, and what is missing in a table is missing below its heading.
        let place = error.span().filter(|span| !is_missing || span.start > 0);
        match place.and_then(|span| line_at(text, span.start)) {
            Some((number, line)) => format!("line {number}, `{line}`: {what}; {advice}"),
            None => format!("{what}; {advice}"),
        }
    })
}

/// The line around the byte `at`, and its number.
fn line_at(text: &str, at: usize) -> Option<(usize, &str)> {
    let before = text.get(..at)?;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(start..)?.lines().next().unwrap_or_default();
    let shown = line.char_indices().nth(LINE_SHOWN_CHARS).map_or(line.len(), |(end, _)| end);
    Some((before.matches('\n').count() + 1, line[..shown].trim()))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        name: String,
        #[serde(default)]
        limits: Limits,
    }

    #[derive(Deserialize, PartialEq, Debug, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Limits {
        clients: u32,
    }

    fn error(text: &str) -> String {
        from_toml::<Settings>(text).unwrap_err()
    }

    #[test]
    fn mistakes_are_shown_where_they_stand() {
        assert_eq!(
            error("name = \"a\"\n[limits]\nclient = 3\n"),
            "line 3, `client = 3`: unknown field `client`, expected `clients`; correct or remove the line"
        );
        assert!(error("name = \"a\"\n[limits]\n  clients = -3").contains("line 3, `clients = -3`: "));
        assert!(error("name = \"a\"\nlimits").starts_with("line 2, `limits`: "));
        assert!(error("name = \"a\"\nname = \"b\"").starts_with("line 2, `name = \"b\"`: "));
        let long = format!("name = \"a\"\nlimits = \"{}\"", "ä".repeat(200));
        assert!(
            error(&long).contains(&format!("line 2, `limits = \"{}`: ", "ä".repeat(70))),
            "{}",
            error(&long)
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(error(""), "missing field `name`; add the key");
        assert_eq!(error("[limits]\nclients = 3\n"), "missing field `name`; add the key");
        let nested =
            from_toml::<std::collections::BTreeMap<String, Settings>>("# two\n[a]\nlimits.clients = 3\n");
        assert_eq!(nested.unwrap_err(), "line 2, `[a]`: missing field `name`; add the key");
        let written = Settings { name: "a".to_owned(), limits: Limits { clients: 3 } };
        assert_eq!(from_toml("name = \"a\"\nlimits.clients = 3"), Ok(written));
    }
}
