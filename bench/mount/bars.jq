# What bench/mount/run measures against what, and how many times as good a mount has to be.

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
