//! The commands of a multi-user load like Kenbus1 (SPEC SDM; K94 table 1), in which users develop
//! programs. Each command is stored as the skeleton of a recording ([`crate::skeleton::Skeleton`]).
//! `skeletons/record.sh` makes the skeletons.

/// The 18 commands, with their skeletons.
pub const KENBUS: [(&str, &str); 18] = [
    ("sh", include_str!("../skeletons/sh.skeleton")),
    ("ls", include_str!("../skeletons/ls.skeleton")),
    ("cat", include_str!("../skeletons/cat.skeleton")),
    ("cp", include_str!("../skeletons/cp.skeleton")),
    ("mv", include_str!("../skeletons/mv.skeleton")),
    ("rm", include_str!("../skeletons/rm.skeleton")),
    ("mkdir", include_str!("../skeletons/mkdir.skeleton")),
    ("chmod", include_str!("../skeletons/chmod.skeleton")),
    ("touch", include_str!("../skeletons/touch.skeleton")),
    ("date", include_str!("../skeletons/date.skeleton")),
    ("grep", include_str!("../skeletons/grep.skeleton")),
    ("sed", include_str!("../skeletons/sed.skeleton")),
    ("sort", include_str!("../skeletons/sort.skeleton")),
    ("wc", include_str!("../skeletons/wc.skeleton")),
    ("diff", include_str!("../skeletons/diff.skeleton")),
    ("find", include_str!("../skeletons/find.skeleton")),
    ("cc", include_str!("../skeletons/cc.skeleton")),
    ("as", include_str!("../skeletons/as.skeleton")),
];
