# 100 coroutines of Tcl, whose stack is on its heap, in turns, with errors. No exact count is compared, only the
# identities of `Oracle::Identities` (tests/src/zoo.rs).
proc body {} {
    set sum 0
    for {set turn 0} {$turn < 10} {incr turn} {
        yield
        catch {incr sum [string length [string repeat x 4000]]; error thrown}
    }
    return $sum
}
for {set i 0} {$i < 100} {incr i} { coroutine c$i body }
puts ready
flush stdout
gets stdin
set sum 0
for {set turn 0} {$turn < 10} {incr turn} {
    for {set i 0} {$i < 100} {incr i} {
        set got [c$i]
        if {$got ne ""} { incr sum $got }
    }
}
puts $sum
