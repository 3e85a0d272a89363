//! `heaptrace -p PID`: what a running program allocates from now on.
//!
//! Receives: a pid. Returns: reports and exit code 0, or one sentence and exit code 3. Must hold: the program keeps
//! running, whatever happens to us, and its code is restored at the end.
use super::options::Options;
use super::signals::Signals;
use super::tree::Tree;
use super::units::Size;
use crate::attach::again_after_exec;
use crate::patching_thread::DebugSymbols;
use crate::recorder_limits::RecorderLimits;
use crate::search_options::SearchOptions;
use crate::{library, say};
use attach::{Attached, Checked, Prepared, Refusal};
use collector::{Attachment, Hub, LivePlan, Recording, Setup};
use format::HeapAtAttach;

pub fn run(options: Options, pid: u32) -> anyhow::Result<()> {
    let signals = Signals::take()?;
    let limits = RecorderLimits::prepare(&options.recorder)?;
    signals.listen();
    let Begun { hub, recording, attached, heap } = again_after_exec(|| begin(&options, pid))?;
    say(format_args!(
        "heaptrace: attached to {pid} until Ctrl-C; its heap has {} already, which is not watched",
        Size(heap.size_bytes)
    ));
    limits.apply("heaptrace");
    Tree::new(options, hub, signals).watch_attached(pid, recording, attached, &limits);
    Ok(())
}

/// A session that has begun.
struct Begun {
    hub: Hub,
    recording: Recording,
    attached: Attached,
    heap: HeapAtAttach,
}

fn begin(options: &Options, pid: u32) -> anyhow::Result<Begun> {
    let checked = Checked::new(pid)?;
    let heap = collector::heap_of(&checked.process.folder).unwrap_or_default();
    let exe = checked.process.exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let symbols = DebugSymbols::new(pid, SearchOptions::default().search());
    let mut prepared = Prepared::with_symbols(checked, library::CONTENT, &|module| symbols.of(module))?;
    let channel = prepared.channel.take().ok_or(Refusal::Gone)?;
    let plan = LivePlan {
        setup: Setup {
            geometry: prepared.geometry(),
            clock: collector::kernel_clock(),
            on_full: channel::OnFull::Wait,
            max_stall_ms: 30_000,
            lsan_symbol: 0,
            // The program's signals are not touched, because a handler could not be removed again.
            watched: false,
            reads_every_clock: false,
            records_maps: false,
            sampling: Default::default(),
        },
        folder: std::env::temp_dir(),
        exe: exe.strip_suffix(" (deleted)").unwrap_or(&exe).to_owned(),
        depth: options.depth,
    };
    let hub = Hub::create(plan.clone())?;
    let own_ranges = prepared.own_ranges();
    let recording = Recording::live_attached(plan, Attachment { pid, channel, heap, own_ranges })?;
    for note in std::mem::take(&mut prepared.notes) {
        say(format_args!("heaptrace: {note}"));
    }
    let attached = prepared.begin(&recording.mapping().region(), recording.now(), None)?;
    Ok(Begun { hub, recording, attached, heap })
}
