//! How recording starts in a program that heaptrack has launched.
use super::initial::{auxiliary, find_debug, find_environment, stack_end};
use super::mapping::{connect, is_behind_own_filter, path_of};
use super::{ACTIVE, COUNTING, Core, EXACT, Parts, Private, Refusal, SHUT, State};
use crate::clock::Source;
use crate::elf::{self, Debug, Headers, LinkMap};
use crate::environment::{self, Environment};
use crate::modules::KernelQueries;
use crate::{
    dl_find_object, exec, exec_site, families, follow, loader, nesting, real, sampling, sandbox, signals, sys,
};
use channel::{Clock, Fence, Header, PAGE, Phase, Region};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

impl Core {
    /// Finds the channel and the real functions, and starts recording if both are there. Returns when this has been
    /// done, by this thread or by another one.
    #[cold]
    pub fn start(&self) {
        if !self.advance(State::Asleep, State::Starting) {
            while self.state.load(Ordering::Acquire) == State::Starting as u32 {
                core::hint::spin_loop();
            }
            return;
        }
        let ready = self.prepare().is_some();
        self.settle(if ready { State::Ready } else { State::Passive });
        if ready && follow::is_wanted() {
            self.open();
        }
    }

    pub(super) fn prepare(&self) -> Option<()> {
        let stack_end = stack_end();
        let auxiliary = auxiliary(stack_end)?;
        let program = auxiliary.headers;
        self.stack_top.store(auxiliary.random, Ordering::Relaxed);
        let debug = find_debug(program)?;
        // SAFETY: start-up (see `Core`). `find_debug` returned the loader's `r_debug`, which is a static of the loader.
        let maps = unsafe { (*debug).maps };
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        let complete = unsafe { real::resolve(maps, elf::own_dynamic()) };
        if stack_end.is_null() {
            // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
            unsafe { nesting::expect(maps, program, elf::own_dynamic()) };
        }
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        unsafe {
            crate::mappings::resolve(maps, program, elf::own_dynamic());
            sandbox::resolve(maps, elf::own_dynamic());
            exec::resolve(maps, elf::own_dynamic());
            crate::fork::resolve(maps, elf::own_dynamic());
            crate::ending::resolve(maps, elf::own_dynamic());
            dl_find_object::resolve(maps, elf::own_dynamic());
        }
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        let stderr = unsafe { real::find_anywhere(maps, b"stderr") };
        self.stderr.store(stderr.unwrap_or(0), Ordering::Relaxed);
        // SAFETY: start-up (see `Core`): the list is stable. `stack_end` returned null or the value of the loader's
        // variable.
        let environment = unsafe { find_environment(stack_end, maps)? };
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, and it is stable.
        if unsafe { real::is_behind_a_copy(maps, elf::own_dynamic()) } {
            return None;
        }
        // SAFETY: start-up (see `Core`): `find_environment` found the initial list, whose strings the kernel put on the
        // stack, and no other thread uses it.
        let channel = unsafe { environment.take(environment::CHANNEL) };
        // SAFETY: start-up (see `Core`): the initial list, which no other thread uses.
        if unsafe { is_behind_own_filter(environment, path_of(channel.get())) } {
            if !channel.is_empty() {
                // SAFETY: `start` has set `Starting`. Start-up (see `Core`): the initial list, which no other thread
                // uses.
                unsafe { self.read_carried(environment, channel.get()) };
            }
            // SAFETY: start-up (see `Core`): the initial list, which no other thread uses.
            unsafe { remove_follow(environment) };
            return None;
        }
        // SAFETY: `start` has set `Starting`. Start-up (see `Core`): the initial list, which no other thread uses.
        let is_followed = unsafe { self.read_hub(environment) };
        if channel.is_empty() && !is_followed {
            return None;
        }
        if !is_followed {
            // SAFETY: `start` has set `Starting`. Start-up (see `Core`): the initial list, which no other thread uses.
            unsafe { self.read_carried(environment, channel.get()) };
        }
        // SAFETY: start-up (see `Core`): the initial list on the stack, which no other thread uses.
        let stops = unsafe { environment.take(environment::STOP_AT) };
        let pid = sys::getpid();
        let is_wanted = !is_followed || follow::look_at_name();
        if channel.is_empty() && !is_wanted {
            return None;
        }
        let region =
            if channel.is_empty() { follow::claim(pid, follow::Need::Event)? } else { connect(channel.get())? };
        let header = region.header();
        if channel.is_empty() {
            follow::store_program(&region);
            follow::store_origin(header, sys::getppid(), None);
        }
        let target = &header.target_pid;
        let is_ours = target.load(Ordering::Acquire) == pid
            || target.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !is_ours || header.phase.load(Ordering::Acquire) == Phase::Stopped as u32 {
            return None;
        }
        if !complete {
            return refuse(header, Refusal::NoAllocator);
        }
        self.read_stops(stops.get());
        // SAFETY: start-up (see `Core`): `maps` is the loader's list, it is stable, and there is no other thread.
        unsafe {
            families::hide(maps, program, Core::start as *const () as u64);
            families::enable(maps, program, Core::start as *const () as u64);
        }
        self.assemble(region, debug, program, pid)
    }

    /// Removes our library from the environment, and remembers what an exec of this process must pass on.
    ///
    /// # Safety
    /// The state is `Starting`, set by the caller's thread. `environment` is the process's initial one with its strings
    /// on the stack, and no other thread uses it.
    #[inline(never)]
    pub(super) unsafe fn read_carried(&self, environment: Environment, channel: &[u8]) {
        // SAFETY: in `Starting` only this thread has a reference to `carried`. `take_library` asks for the initial list
        // that no other thread uses, which the caller promises.
        unsafe {
            let carried = &mut *self.carried.get();
            carried.library = environment.take_library();
            carried.value.push(b"-,");
            carried.value.push(path_of(channel));
        }
    }

    /// If a tree of processes is followed, maps its hub (`follow.rs`), remembers what every exec must pass on, and returns
    /// true. Otherwise, or if the hub cannot be mapped, returns false and remembers nothing. Our variables are removed,
    /// unless they must stay because not every exec can be hooked.
    ///
    /// # Safety
    /// As `read_carried`: `Starting`, and the initial environment, which no other thread uses. `exec::resolve` was called.
    #[inline(never)]
    pub(super) unsafe fn read_hub(&self, environment: Environment) -> bool {
        // SAFETY: in `Starting` only this thread has a reference to `carried`. `copy` and `library` ask for the initial
        // list that no other thread uses, which the caller promises. `exec::resolve` found libc's `execve`, and start-up
        // (see `Core`) has one thread, which is also what `ending::patch` asks for.
        unsafe {
            let carried = &mut *self.carried.get();
            carried.value = environment.copy(environment::FOLLOW);
            if carried.value.is_empty() {
                return false;
            }
            let is_found = follow::find_hub(carried.value.as_c_string());
            carried.library = environment.library();
            carried.variable = environment::Variable::Follow;
            if !is_found || exec_site::patch(exec::libc_execve()) {
                remove_follow(environment);
            }
            if is_found {
                crate::ending::patch();
            } else {
                carried.value = environment::Value::EMPTY;
            }
            is_found
        }
    }

    /// Sets the parts, fills the module table, patches the loader, and tells the collector that recording begins.
    pub(super) fn assemble(
        &self,
        region: Region<'static>,
        debug: *const Debug,
        program: Headers,
        pid: u32,
    ) -> Option<()> {
        let header = region.header();
        // A forked child that joins keeps the gate page of its parent, which reads as zero in the child.
        let mut gate = self.gate.load(Ordering::Acquire).cast::<u8>();
        let is_forked = !core::ptr::eq(gate, (&raw const SHUT).cast());
        if !is_forked {
            let Some(page) = sys::map_private(PAGE) else { return refuse(header, Refusal::NotMapped) };
            if !sys::wipe_on_fork(page, PAGE) {
                return refuse(header, Refusal::NoSystemCall);
            }
            gate = page;
        }
        let membarrier = sys::register_membarrier();
        let fence = if membarrier { Fence::Membarrier } else { Fence::InTarget };
        header.fence.store(fence as u32, Ordering::Release);
        let image = header.image.fetch_add(1, Ordering::AcqRel) + 1;
        let private = region.private().cast::<Private>();
        let inherits = is_forked && self.is_patched();
        if inherits {
            self.inherit_modules(&region);
        }
        let parts = Parts { region, private, debug, program, pid };
        self.clock.set(Source::choose(header.clock == Clock::Tsc as u32, membarrier));
        self.clock.check_thread(header);
        if image > 1 {
            // SAFETY: `private` is aligned and mapped (see `private`), and zeros are a valid `Private`. These are the
            // tables of the program before this exec, whose threads the kernel has ended. The new program has one
            // thread, which has not set `parts` yet.
            unsafe { core::ptr::write_bytes(private, 0, 1) };
        }
        // SAFETY: the state is `Starting` or `Joining`, each of which admits one thread, and the gate is shut. So no
        // other thread has a reference to `parts`.
        unsafe { *self.parts.get() = MaybeUninit::new(parts) };
        self.gate.store(gate.cast(), Ordering::Release);
        if !inherits {
            self.find_modules(is_forked);
        }
        if header.heaptrace.watched != 0 {
            signals::watch(is_forked);
        } else if !inherits {
            self.copy_suppressions();
        }
        follow::joined();
        header.phase.store(Phase::Recording as u32, Ordering::Release);
        self.ring_bell();
        Some(())
    }

    /// Fills the module table from the loader's list, and watches the loader.
    fn find_modules(&self, is_forked: bool) {
        let debug = self.parts().debug;
        // SAFETY: start-up (see `Core`): the list is stable, and no notification can come, so this thread is the only
        // writer.
        unsafe {
            self.refresh_modules(if is_forked { KernelQueries::WithoutFolder } else { KernelQueries::WithFolder })
        };
        if !loader::watch(debug) {
            // SAFETY: start-up (see `Core`): `debug` is the loader's `r_debug`, its list is stable, and
            // `refresh_modules` has taken in its modules.
            unsafe { dl_find_object::begin((*debug).maps, self.header().module_count.load(Ordering::Relaxed)) };
        }
        if !is_forked {
            self.wait_for_patches();
        }
    }

    /// Fills the module table in `region`, the new shared memory of a forked child, from that of its parent, in which the
    /// profiler has patched the program. The parts are still those of the parent. The patch by which the parent watches
    /// its loader, if it has one, is in the child, too.
    #[cold]
    #[inline(never)]
    fn inherit_modules(&self, region: &Region<'static>) {
        let private = region.private().cast::<Private>();
        let stamp = region.header().ticks.load(Ordering::Relaxed);
        // SAFETY: `private` is aligned and mapped (see `private`), and zeros are a valid `Private`. The child has one
        // thread, and it is here, so no other code uses these tables.
        unsafe { (*(*private).known_modules.get()).inherit(&(*private).modules, region, self.region(), stamp) };
    }

    pub(super) fn open(&self) {
        let counting = self.stops.iter().any(|s| s.load(Ordering::Relaxed) != 0);
        self.begin_sampling();
        let open = self.open_bits();
        // SAFETY: the gate is mapped (see `Core`); `assemble` has stored it.
        unsafe {
            (*self.gate.load(Ordering::Relaxed)).store(if counting { open | COUNTING } else { open }, Ordering::Release)
        };
    }

    /// The bits of an open gate.
    pub(super) fn open_bits(&self) -> u32 {
        if self.header().sampling.rate.load(Ordering::Relaxed) == 0 { ACTIVE | EXACT } else { ACTIVE }
    }

    /// If the collector asks for samples, prepares for them.
    fn begin_sampling(&self) {
        let asked = &self.header().sampling;
        let is_sampled = asked.rate.load(Ordering::Relaxed) != 0;
        if is_sampled {
            sampling::begin(asked.exact_above);
        }
        // If libc's functions call each other through the hooks, a call inside another one must not count twice. Then
        // the shims stay as they are.
        let shims = is_sampled && nesting::libc().is_none() && !families::is_any_enabled();
        sampling::SHIMS_SAMPLE.store(shims as u32, Ordering::Relaxed);
    }

    /// Copies the text of `__lsan_default_suppressions` into the channel, if the program has that function.
    pub(super) fn copy_suppressions(&self) {
        let parts = self.parts();
        // SAFETY: start-up (see `Core`): the `r_debug` and its list are stable. LeakSanitizer's interface says that the
        // function of this name has no arguments and returns null or a C string that stays. `find_anywhere` or
        // `hidden_suppressions` found it. The loader has relocated the program before it calls us.
        unsafe {
            let maps = (*parts.debug).maps;
            let exported = real::find_anywhere(maps, b"__lsan_default_suppressions");
            let Some(address) = exported.or_else(|| self.hidden_suppressions(maps)) else { return };
            let function: extern "C" fn() -> *const u8 = core::mem::transmute(address);
            let text = function();
            if text.is_null() {
                return;
            }
            let (at, len) = crate::modules::store_name(&parts.region, environment::bytes(text));
            self.header().suppressions.text.store((at as u64) << 32 | len as u64, Ordering::Release);
        }
    }

    /// Returns the address of `__lsan_default_suppressions` in a program that does not export it, or `None` if there is
    /// none. The collector has looked for it in the symbol table of the first program. So the address is not valid
    /// after an exec.
    pub(super) fn hidden_suppressions(&self, maps: *const LinkMap) -> Option<u64> {
        let header = self.header();
        let offset = header.suppressions.symbol;
        // SAFETY: `maps` is the loader's list, taken by `copy_suppressions` at start-up (see `Core`). Its first entry
        // is the program.
        let bias = unsafe { maps.as_ref() }?.bias;
        (offset != 0 && header.image.load(Ordering::Relaxed) == 1).then(|| bias.wrapping_add(offset))
    }

    pub(super) fn read_stops(&self, list: &[u8]) {
        let mut rest = list;
        for stop in &self.stops {
            let Some((value, digits)) = environment::number(rest) else { break };
            stop.store(value, Ordering::Relaxed);
            rest = rest.get(digits + 1..).unwrap_or(&[]);
        }
    }
}

/// Removes the variables by which a followed tree is found, if they are there.
///
/// # Safety
/// `environment` is the process's initial one with its strings on the stack, and no other thread uses it.
#[inline(never)]
unsafe fn remove_follow(environment: Environment) {
    // SAFETY: the caller promises the initial list with writable strings, which no other thread uses.
    unsafe {
        if !environment.take(environment::FOLLOW).is_empty() {
            environment.take_library();
        }
    }
}

pub(super) fn refuse(header: &Header, why: Refusal) -> Option<()> {
    header.refusal.store(why as u32, Ordering::Release);
    None
}
