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

/// The default stream, and that of each thread (`cudaStreamPerThread`), which is one for all threads here.
pub(crate) const LEGACY: usize = 0;
pub(crate) const PER_THREAD: usize = 1;

/// What the program does itself, for which the host's clock stands; streams that it makes have the numbers behind.
const HOST: usize = 2;
pub(crate) const FIRST: usize = 3;

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
    /// Of the default streams, which are of whatever device is current, this says nothing.
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
        match self.streams.get(stream) {
            Some(own) if stream >= FIRST => own.device,
            _ => devices::current(),
        }
    }

    /// What is done before the next operation of a stream.
    fn clock(&mut self, stream: usize) -> Clock {
        let Stream { mut clock, is_apart, .. } = self.stream(stream).clone();
        join(&mut clock, &self.host);
        join(&mut clock, &self.devices[self.device_of(stream)]);
        let with_default = self.streams.iter().enumerate().filter(|(number, other)| {
            let is_default = stream == LEGACY && self.device_of(*number) == devices::current();
            !is_apart && !other.is_apart && (is_default || *number == LEGACY)
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
        let mut clock = self.stream(LEGACY).clock.clone();
        let streams = self.streams.iter().enumerate();
        let theirs = streams.filter(|(stream, _)| devices.contains(&self.device_of(*stream)));
        theirs.for_each(|(_, stream)| join(&mut clock, &stream.clock));
        self.stream(LEGACY).clock = clock;
    }

    /// All that some devices are given from now on comes behind the default stream.
    pub(crate) fn wait_for_default(&mut self, devices: &[usize]) {
        let clock = self.stream(LEGACY).clock.clone();
        devices.iter().for_each(|device| join(&mut self.devices[*device], &clock));
    }

    /// The host waits for the streams of a device, and for the default ones.
    pub(crate) fn wait_for_device(&mut self, device: usize) {
        let streams = self.streams.iter().enumerate();
        let own = streams.filter(|(number, stream)| *number < FIRST || stream.device == device);
        own.for_each(|(_, stream)| join(&mut self.host, &stream.clock));
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
    current().unwrap_or(LEGACY)
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
        assert_eq!(next(&mut clocks, 7), [0; 0]);
        assert_eq!(next(&mut clocks, 3), [1]);
        clocks.record(70, 3);
        assert_eq!(next(&mut clocks, 3), [1]);
        // The event is of the second operation alone.
        clocks.stream_waits(7, 70);
        assert_eq!(next(&mut clocks, 7), [3]);
        clocks.wait_for_event(70);
        assert_eq!(next(&mut clocks, 4), [1, 3, 4]);
        clocks.wait_for_stream(7);
        assert_eq!(next(&mut clocks, 5), [3, 5]);
        assert!(clocks.is_busy());
        clocks.wait_for_all();
        assert!(!clocks.is_busy());
        assert_eq!(next(&mut clocks, 6), [0; 0]);
    }

    /// What the program does comes before what it submits then, and behind what it waited for.
    #[test]
    fn the_host_is_in_order_with_itself() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        submit(&mut clocks, &mut all, 3);
        assert_eq!(clocks.order_of_host(), Order { queue: HOST, behind: Vec::new() });
        all.push(HOST);
        clocks.done_by_host(2);
        assert_eq!(submit(&mut clocks, &mut all, 4), [1]);
        clocks.wait_for_stream(3);
        assert_eq!(clocks.order_of_host().behind[3], 1);
    }

    #[test]
    fn the_default_stream_waits_for_others_and_they_for_it() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        let mut next = |clocks: &mut Clocks, stream| submit(clocks, &mut all, stream);
        clocks.create(4, true);
        next(&mut clocks, 7);
        next(&mut clocks, 4);
        assert_eq!(next(&mut clocks, LEGACY), [2]);
        assert_eq!(next(&mut clocks, PER_THREAD), [2]);
        assert_eq!(next(&mut clocks, 3), [2, 4]);
        assert_eq!(next(&mut clocks, 4), [1, 3, 4, 5]);
        // Waiting for the default stream is waiting for those that it waits for, and not for the one apart.
        clocks.wait_for_stream(LEGACY);
        assert_eq!(next(&mut clocks, 7), [2, 6]);
    }

    #[test]
    fn work_between_devices_is_in_turn_with_theirs() {
        let (mut clocks, mut all) = (Clocks::default(), Vec::new());
        let mut next = |clocks: &mut Clocks, stream| submit(clocks, &mut all, stream);
        for stream in 3..6 {
            devices::set_current(stream - 3);
            clocks.create(stream, true);
            next(&mut clocks, stream);
        }
        clocks.default_waits(&[0, 1]);
        assert_eq!(next(&mut clocks, LEGACY), [3]);
        clocks.wait_for_default(&[0, 1]);
        assert_eq!(next(&mut clocks, 3), [3]);
        assert_eq!(next(&mut clocks, 4), [3, 5]);
        assert_eq!(next(&mut clocks, 5), [1, 2, 4, 5, 6]);
        devices::set_current(0);
        clocks.wait_for_device(0);
        assert_eq!(next(&mut clocks, 3), [3, 6, 7]);
    }

    #[test]
    fn work_inside_of_a_stream_is_that_streams() {
        assert_eq!(current(), None);
        assert_eq!(on(3, || (on(4, current), current())), (Some(4), Some(3)));
        assert_eq!(current(), None);
    }
}
