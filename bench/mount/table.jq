# The table of bench/mount/run: a line for each figure, systems beside each other, and whether the bar is met.
# Ratios are such that more is better: rates by rates, times the other way round.

def bars: {
    dbench_2_mb_s: {against: "gluster", at_least: 5},
    dbench_10_mb_s: {against: "gluster", at_least: 5},
    untar_s: {against: "gluster", at_least: 8},
    file_create_per_s: {against: "gluster", at_least: 5},
    file_stat_per_s: {against: "gluster", at_least: 5},
    file_read_per_s: {against: "gluster", at_least: 5},
    file_remove_per_s: {against: "gluster", at_least: 5},
    fio_write_mib_s: {against: "gluster", at_least: 1},
    fio_read_mib_s: {against: "gluster", at_least: 1},
    fio_sync_4k_p99_us: {against: "gluster", at_least: 2},
    build_s: {against: "local", at_least: (1 / 1.5)}
};

def is_time: test("(_per_s|_mb_s|_mib_s)$") | not;

# How many times as good the first is as the second.
def times($ours; $theirs; $key):
    if $ours == null or $theirs == null or $ours == 0 or $theirs == 0 then null
    elif ($key | is_time) then $theirs / $ours
    else $ours / $theirs end;

def shown: if . == null then "-" elif . >= 100 then round | tostring else (. * 100 | round) / 100 | tostring end;

def right($width): (" " * ([$width - length, 0] | max)) + .;

def left($width): . + (" " * ([$width - length, 0] | max));

def row($cells; $bar): ($cells[0] | left(24)) + ([$cells[1:][] | right(11)] | add) + "  " + $bar;

. as $all
| ["local", "fleasefs", "gluster", "bindfs"] as $systems
| row(["", $systems[], "/ gluster", "/ bindfs", "/ local"]; "bar"),
  ([$all[] | keys_unsorted[]] | unique[]) as $key
| ($systems | map($all[.][$key])) as $figures
| $figures[1] as $ours
| bars[$key] as $bar
| (if $bar then times($ours; $all[$bar.against][$key]; $key) else null end) as $ratio
| row([
      $key,
      ($figures[] | shown),
      (times($ours; $figures[2]; $key), times($ours; $figures[3]; $key), times($ours; $figures[0]; $key) | shown)
  ]; if $bar == null then "" else
      "\($bar.at_least | shown) of \($bar.against): " + (if $ratio == null then "not measured" elif $ratio >= $bar.at_least then "met" else "MISSED" end)
  end)
