//! Which work of streams is behind which, where global memory is watched. Everything is done at once here; on a GPU
//! two streams run beside each other until something orders them.
//!
//! A clock says of each stream up to which operation its work is done. Streams have one, the host has one (what it
//! submits comes behind what it waited for), and an event keeps that of the stream which recorded it.

use std::cell::Cell;
use std::collections::HashMap;

use nvabi_emu::Order;

use crate::devices::{self, MOST};

/// By stream, the number of the last operation that is certainly done.
type Clock = Vec<u64>;

/// What the program does itself, for which the host's clock stands.
const HOST: usize = 0;

/// The default streams of each device. That of each thread (`cudaStreamPerThread`) is one for all threads here.
const LEGACY: usize = 1;
const PER_THREAD: usize = LEGACY + MOST;

/// Streams that the program makes have the numbers from here on.
pub(crate) const FIRST: usize = PER_THREAD + MOST;

/// The default stream of the current device.
pub(crate) fn legacy() -> usize {
    LEGACY + devices::current()
}

/// The same, of each thread.
pub(crate) fn per_thread() -> usize {
    PER_THREAD + devices::current()
}

/// The clocks of streams, by their numbers, of events and of the host.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    host: Clock,
    streams: Vec<Stream>,
    events: HashMap<usize, Clock>,
    /// By device: what all its streams, those to come as well, are behind.
    devices: [Clock; MOST],
}

#[derive(Debug, Clone, Default)]
struct Stream {
    clock: Clock,
    /// `CU_STREAM_NON_BLOCKING`: the default stream does not wait for it, nor it for that one.
    is_apart: bool,
    /// Of streams that the program made: the numbers of the others say it.
    device: usize,
}

fn join(clock: &mut Clock, other: &[u64]) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    for (own, other) in clock.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

impl Clocks {
    fn stream(&mut self, stream: usize) -> &mut Stream {
        if self.streams.len() <= stream {
            self.streams.resize(stream + 1, Stream::default());
        }
        &mut self.streams[stream]
    }

    /// A new stream of the current device, and whether it is one for which the default stream does not wait.
    pub(crate) fn create(&mut self, stream: usize, is_apart: bool) {
        let device = devices::current();
        *self.stream(stream) = Stream { is_apart, device, ..Stream::default() };
    }

    fn device_of(&self, stream: usize) -> usize {
        match stream {
            PER_THREAD..FIRST => stream - PER_THREAD,
            LEGACY..PER_THREAD => stream - LEGACY,
            _ => self.streams.get(stream).map_or(0, |own| own.device),
        }
    }

    /// What is done before the next operation of a stream.
    fn clock(&mut self, stream: usize) -> Clock {
        let Stream { mut clock, is_apart, .. } = self.stream(stream).clone();
        join(&mut clock, &self.host);
        let device = self.device_of(stream);
        join(&mut clock, &self.devices[device]);
        let default = LEGACY + device;
        let with_default = self.streams.iter().enumerate().filter(|(number, other)| {
            let are_both = stream == default && self.device_of(*number) == device;
            !is_apart && !other.is_apart && (are_both || *number == default)
        });
        with_default.for_each(|(_, other)| join(&mut clock, &other.clock));
        clock
    }

    /// The order of the next operation of a stream.
    pub(crate) fn order(&mut self, stream: usize) -> Order {
        Order { queue: stream, behind: self.clock(stream) }
    }

    /// That operation got a number.
    pub(crate) fn submitted(&mut self, order: Order, number: u64) {
        let Order { queue, mut behind } = order;
        if behind.len() <= queue {
            behind.resize(queue + 1, 0);
        }
        behind[queue] = number;
        self.stream(queue).clock = behind;
    }

    /// The order of what the program does itself.
    pub(crate) fn order_of_host(&self) -> Order {
        Order { queue: HOST, behind: self.host.clone() }
    }

    /// That got a number: what is submitted from now on comes behind it.
    pub(crate) fn done_by_host(&mut self, number: u64) {
        let mut clock = vec![0; HOST];
        clock.push(number);
        join(&mut self.host, &clock);
    }

    /// Whether there is work that the host did not wait for.
    pub(crate) fn is_busy(&self) -> bool {
        let last = |clock: &Clock, number: usize| clock.get(number).copied().unwrap_or(0);
        let mut streams = self.streams.iter().enumerate();
        streams.any(|(number, stream)| last(&stream.clock, number) > last(&self.host, number))
    }

    /// The host waits for a stream.
    pub(crate) fn wait_for_stream(&mut self, stream: usize) {
        let clock = self.clock(stream);
        join(&mut self.host, &clock);
    }

    /// The next operation of the default stream comes behind all that some devices were given.
    pub(crate) fn default_waits(&mut self, devices: &[usize]) {
        let default = legacy();
        let mut clock = self.stream(default).clock.clone();
        let streams = self.streams.iter().enumerate();
        let theirs = streams.filter(|(stream, _)| devices.contains(&self.device_of(*stream)));
        theirs.for_each(|(_, stream)| join(&mut clock, &stream.clock));
        self.stream(default).clock = clock;
    }

    /// All that some devices are given from now on comes behind the default stream.
    pub(crate) fn wait_for_default(&mut self, devices: &[usize]) {
        let clock = self.stream(legacy()).clock.clone();
        devices.iter().for_each(|device| join(&mut self.devices[*device], &clock));
    }

    /// The host waits for the streams of a device.
    pub(crate) fn wait_for_device(&mut self, device: usize) {
        let mut clock = std::mem::take(&mut self.host);
        let streams = self.streams.iter().enumerate();
        let own = streams.filter(|(number, _)| self.device_of(*number) == device);
        own.for_each(|(_, stream)| join(&mut clock, &stream.clock));
        self.host = clock;
    }

    /// The host waits for everything.
    pub(crate) fn wait_for_all(&mut self) {
        self.streams.iter().for_each(|stream| join(&mut self.host, &stream.clock));
    }

    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        let clock = self.clock(stream);
        self.events.insert(event, clock);
    }

    /// The host waits for an event.
    pub(crate) fn wait_for_event(&mut self, event: usize) {
        if let Some(clock) = self.events.get(&event) {
            join(&mut self.host, clock);
        }
    }

    /// A stream waits for an event.
    pub(crate) fn stream_waits(&mut self, stream: usize, event: usize) {
        if let Some(clock) = self.events.get(&event).cloned() {
            join(&mut self.stream(stream).clock, &clock);
        }
    }
}

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Does the work of a stream, which [`current`] names meanwhile.
pub(crate) fn on<T>(stream: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(Some(stream));
    let done = work();
    CURRENT.set(before);
    done
}

/// The stream whose work this thread does; none in a call that names no stream.
pub(crate) fn current() -> Option<usize> {
    CURRENT.get()
}

/// The same, where such a call is work of the default stream.
pub(crate) fn current_or_default() -> usize {
    current().unwrap_or_else(legacy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Submits an operation; which of the earlier ones it is not behind.
    fn submit(clocks: &mut Clocks, all: &mut Vec<usize>, stream: usize) -> Vec<usize> {
        let order = clocks.order(stream);
        let done = |stream: usize| order.behind.get(stream).copied().unwrap_or(0);
        let numbered = all.iter().zip(1..);
        let beside = numbered.filter(|(of, number)| done(**of) < *number).map(|(_, n)| n as usize);
        let beside = beside.collect();
        all.push(stream);
        clocks.submitted(order, all.len() as u64);
        beside
    }

    #[test]
    fn streams_run_beside_each_other_until_something_orders_them() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        let mut next = |clocks: &mut Clocks, stream| submit(clocks, &mut all, stream);
        assert_eq!(next(&mut clocks, FIRST + 7), [0; 0]);
        assert_eq!(next(&mut clocks, FIRST + 3), [1]);
        clocks.record(70, FIRST + 3);
        assert_eq!(next(&mut clocks, FIRST + 3), [1]);
        // The event is of the second operation alone.
        clocks.stream_waits(FIRST + 7, 70);
        assert_eq!(next(&mut clocks, FIRST + 7), [3]);
        clocks.wait_for_event(70);
        assert_eq!(next(&mut clocks, FIRST + 4), [1, 3, 4]);
        clocks.wait_for_stream(FIRST + 7);
        assert_eq!(next(&mut clocks, FIRST + 5), [3, 5]);
        assert!(clocks.is_busy());
        clocks.wait_for_all();
        assert!(!clocks.is_busy());
        assert_eq!(next(&mut clocks, FIRST + 6), [0; 0]);
    }

    /// What the program does comes before what it submits then, and behind what it waited for.
    #[test]
    fn the_host_is_in_order_with_itself() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        submit(&mut clocks, &mut all, FIRST + 3);
        assert_eq!(clocks.order_of_host(), Order { queue: HOST, behind: Vec::new() });
        all.push(HOST);
        clocks.done_by_host(2);
        assert_eq!(submit(&mut clocks, &mut all, FIRST + 4), [1]);
        clocks.wait_for_stream(FIRST + 3);
        assert_eq!(clocks.order_of_host().behind[FIRST + 3], 1);
    }

    #[test]
    fn the_default_stream_waits_for_others_and_they_for_it() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        let mut next = |clocks: &mut Clocks, stream| submit(clocks, &mut all, stream);
        clocks.create(FIRST + 4, true);
        next(&mut clocks, FIRST + 7);
        next(&mut clocks, FIRST + 4);
        assert_eq!(next(&mut clocks, legacy()), [2]);
        assert_eq!(next(&mut clocks, per_thread()), [2]);
        assert_eq!(next(&mut clocks, FIRST + 3), [2, 4]);
        assert_eq!(next(&mut clocks, FIRST + 4), [1, 3, 4, 5]);
        // Waiting for the default stream is waiting for those that it waits for, and not for the one apart.
        clocks.wait_for_stream(legacy());
        assert_eq!(next(&mut clocks, FIRST + 7), [2, 6]);
    }

    #[test]
    fn work_between_devices_is_in_turn_with_theirs() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        let mut next = |clocks: &mut Clocks, stream| submit(clocks, &mut all, stream);
        for device in 0..3 {
            devices::set_current(device);
            clocks.create(FIRST + 3 + device, true);
            next(&mut clocks, FIRST + 3 + device);
        }
        clocks.default_waits(&[0, 1]);
        assert_eq!(next(&mut clocks, legacy()), [3]);
        clocks.wait_for_default(&[0, 1]);
        assert_eq!(next(&mut clocks, FIRST + 3), [3]);
        assert_eq!(next(&mut clocks, FIRST + 4), [3, 5]);
        assert_eq!(next(&mut clocks, FIRST + 5), [1, 2, 4, 5, 6]);
        devices::set_current(0);
        clocks.wait_for_device(0);
        assert_eq!(next(&mut clocks, FIRST + 3), [3, 6, 7]);
    }

    /// Each device has its own, and so has each thread of each.
    #[test]
    fn default_streams_of_devices_are_in_no_order() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        let mut next = |clocks: &mut Clocks, stream| submit(clocks, &mut all, stream);
        for device in 0..2 {
            devices::set_current(device);
            clocks.create(FIRST + device, false);
            next(&mut clocks, legacy());
        }
        assert_eq!(next(&mut clocks, FIRST), [2]);
        assert_eq!(next(&mut clocks, FIRST + 1), [1, 3]);
        assert_eq!(next(&mut clocks, legacy()), [1, 3]);
        assert_eq!(next(&mut clocks, per_thread()), [1, 3]);
        devices::set_current(0);
        assert_eq!(next(&mut clocks, per_thread()), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn work_inside_of_a_stream_is_that_streams() {
        assert_eq!(current(), None);
        assert_eq!(on(3, || (on(4, current), current())), (Some(4), Some(3)));
        assert_eq!(current(), None);
    }
}
