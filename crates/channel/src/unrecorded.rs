//! Why a program that the target executed in its own process is not recorded. Stored in `Header::unrecorded_exec`.
use crate::numbered::numbered;

numbered! {
    pub enum UnrecordedExec: u32 {
        /// The new program cannot open the capture library or the channel, because it has another user, root folder or
        /// mounts.
        OutOfReach = 1 => "cannot open heaptrack's files (it runs as another user, or with another root folder)",
        Static = 2 => "is linked statically",
        Privileged = 3 => "is setuid, setgid or has file capabilities",
        Architecture = 4 => "is built for another architecture",
        /// The target is in a seccomp sandbox, so the capture library may not make the system calls that would tell.
        Sandbox = 5 => "was started from a seccomp sandbox",
        /// It must load its own library first.
        Sanitizer = 6 => "is built with AddressSanitizer or MemorySanitizer",
        /// Our library is not asked for malloc. It is preloaded in any case, unless the profiler patches the program.
        OwnMalloc = 7 => "defines malloc itself",
    }
    /// The rest of a sentence that begins with "because the new program".
    pub fn reason
}

impl UnrecordedExec {
    /// Decodes what the target stored. Returns `None` for 0 and for unknown numbers.
    pub fn from_word(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|why| *why as u32 == word)
    }
}
