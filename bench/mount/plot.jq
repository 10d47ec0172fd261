# The plot of bench/mount/run: how many times as good as GlusterFS each system is, for each figure that has a bar; an SVG.

include "bars";

def width: 800;
def left_edge: 170;
def right_edge: 775;
def row_height: 34;
def top: 92;

# From a hundredth to a thousand times.
def decades: [-2, -1, 0, 1, 2, 3];
def x: log10 | [[., -2] | max, 3] | min | (. + 2) / 5 * (right_edge - left_edge) + left_edge | . * 10 | round / 10;

def style: "<style>
text { font: 13px system-ui, sans-serif; fill: #1c1c1c }
.title { font-size: 16px; font-weight: 600 } .quiet { fill: #5c5c5c; font-size: 12px }
.page { fill: #ffffff } .grid { stroke: #e2e2e2 } .one { stroke: #6b6b6b }
.bar { stroke: #1c1c1c; stroke-width: 2.5 }
.fleasefs { fill: #1f6fb4 } .bindfs { fill: #b3560e } .local { fill: #1c7d45 }
@media (prefers-color-scheme: dark) {
text { fill: #ececec } .quiet { fill: #a8a8a8 } .page { fill: #16181b }
.grid { stroke: #34383d } .one { stroke: #9a9a9a } .bar { stroke: #ececec }
.fleasefs { fill: #6db3f2 } .bindfs { fill: #f0a25c } .local { fill: #63cf8e }
}
</style>";

def text($x; $y; $anchor; $class): "<text x=\"\($x)\" y=\"\($y)\" text-anchor=\"\($anchor)\" class=\"\($class)\">\(.)</text>";

def line($class; $x1; $y1; $x2; $y2): "<line class=\"\($class)\" x1=\"\($x1)\" y1=\"\($y1)\" x2=\"\($x2)\" y2=\"\($y2)\"/>";

. as $all
| [bars | to_entries[] | select(.value.against == "gluster" and $all.gluster[.key] and $all.fleasefs[.key])] as $rows
| (top + ($rows | length) * row_height) as $bottom
| "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 \(width) \($bottom + 40)\" width=\"\(width)\" height=\"\($bottom + 40)\" role=\"img\">",
  style,
  "<rect class=\"page\" width=\"\(width)\" height=\"\($bottom + 40)\"/>",
  ("A mount beside other file systems" | text(16; 26; "start"; "title")),
  ("How many times as good as GlusterFS with three bricks, on the same disk, in the same run. More is better." | text(16; 46; "start"; "quiet")),
  ("Bar: fleasefs. Dots: bindfs and the disk itself. Upright mark: what fleasefs has to reach." | text(16; 62; "start"; "quiet")),
  (["fleasefs", "bindfs", "local"] | to_entries[] | .value as $system | (540 + .key * 85) as $x
    | "<rect class=\"\($system)\" x=\"\($x)\" y=\"68\" width=\"10\" height=\"10\"/>",
      ((if $system == "local" then "disk" else $system end) | text($x + 15; 78; "start"; "quiet"))),
  (decades[] | . as $decade | (pow(10; .) | x) as $x
    | line(if $decade == 0 then "one" else "grid" end; $x; top - 6; $x; $bottom),
      ("\(pow(10; $decade) | shown) ×" | text($x; $bottom + 18; "middle"; "quiet"))),
  ($rows | to_entries[] | .value.key as $key | .value.value.at_least as $at_least | (top + .key * row_height) as $y
    | (times($all.fleasefs[$key]; $all.gluster[$key]; $key)) as $ours
    | ([1 | x, ($ours | x)] | sort) as [$from, $to]
    | ($key | text(left_edge - 8; $y + 17; "end"; "")),
      "<rect class=\"fleasefs\" x=\"\($from)\" y=\"\($y + 4)\" width=\"\($to - $from)\" height=\"18\"><title>\($ours | shown) ×</title></rect>",
      (["bindfs", "local"][] | . as $system | select($all[.][$key])
        | "<circle class=\"\(.)\" r=\"5\" cx=\"\(times($all[$system][$key]; $all.gluster[$key]; $key) | x)\" cy=\"\($y + 13)\"/>"),
      line("bar"; $at_least | x; $y; $at_least | x; $y + 26)),
  "</svg>"
