//! Why a program that the target executed in its own process is not recorded. Stored in `Header::unrecorded_exec`.

#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnrecordedExec {
    /// The new program cannot open the capture library or the channel, because it has another user, root folder or
    /// mounts.
    OutOfReach = 1,
    /// It is linked statically.
    Static = 2,
    /// It is setuid, setgid or has file capabilities.
    Privileged = 3,
    /// It is built for another architecture.
    Architecture = 4,
    /// The target is in a seccomp sandbox, so the capture library may not make the system calls that would tell.
    Sandbox = 5,
}

impl UnrecordedExec {
    const ALL: [UnrecordedExec; 5] = [
        UnrecordedExec::OutOfReach,
        UnrecordedExec::Static,
        UnrecordedExec::Privileged,
        UnrecordedExec::Architecture,
        UnrecordedExec::Sandbox,
    ];

    /// Decodes what the target stored. Returns `None` for 0 and for unknown numbers.
    pub fn from_word(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|why| *why as u32 == word)
    }

    /// The rest of a sentence that begins with "because the new program".
    pub const fn reason(self) -> &'static str {
        match self {
            UnrecordedExec::OutOfReach => {
                "cannot open heaptrack's files (it runs as another user, or with another root folder)"
            }
            UnrecordedExec::Static => "is linked statically",
            UnrecordedExec::Privileged => "is setuid, setgid or has file capabilities",
            UnrecordedExec::Architecture => "is built for another architecture",
            UnrecordedExec::Sandbox => "was started from a seccomp sandbox",
        }
    }
}
