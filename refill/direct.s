# A refill handler that searches a tree at once.
    .section .vector, "ax"
refill:
    part search
    sd $at, SAVED_AT($0)
    find
    lw $k1, 4($k0)
    lw $k0, 0($k0)
    finish $k0, $k1, $at
    .section .more, "ax"
none:
    part search
    found_none
