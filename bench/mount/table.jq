# The table of bench/mount/run: a line for each figure, systems beside each other, and whether the bar is met.
# Ratios are such that more is better: rates by rates, times the other way round.

include "bars";

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
