//! Commands for a channel, put together before they are sent.

use super::class::{compute, copy, host};
use super::error::{Error, Result};

/// Which subchannel a class is bound to: each has one from the start of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subchannel {
    /// Class 0xc7c0.
    Compute = 1,
    /// Class 0xc7b5.
    Copy = 4,
}

/// How many words of data a method's header can announce.
const MOST: usize = 0x1fff;

/// Commands. They are plain words: nothing happens before [`Channel::submit`] sends them.
///
/// [`Channel::submit`]: super::Channel::submit
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Push {
    words: Vec<u32>,
}

/// How a method's number goes on from word to word (`NVC46F_DMA_SEC_OP`).
#[derive(Clone, Copy)]
enum Step {
    /// Each word is for the next method.
    Incrementing = 1,
    /// All words are for one method.
    Constant = 3,
}

impl Push {
    /// No commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// The commands as they are sent.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Any method, with data for it and the ones behind it.
    pub fn method(&mut self, subchannel: Subchannel, method: u32, data: &[u32]) -> &mut Self {
        self.raw(Step::Incrementing, subchannel as u32, method, data)
    }

    fn raw(&mut self, step: Step, subchannel: u32, method: u32, data: &[u32]) -> &mut Self {
        for (part, words) in data.chunks(MOST).enumerate() {
            let at = match step {
                Step::Incrementing => method / 4 + (part * MOST) as u32,
                Step::Constant => method / 4,
            };
            self.words
                .push((step as u32) << 29 | (words.len() as u32) << 16 | subchannel << 13 | at);
            self.words.extend_from_slice(words);
        }
        self
    }

    fn host(&mut self, method: u32, data: &[u32]) -> &mut Self {
        self.raw(Step::Incrementing, 0, method, data)
    }

    /// Binds a class to a subchannel; a channel does it for its own.
    pub fn set_object(&mut self, subchannel: Subchannel, class: u32) -> &mut Self {
        self.method(subchannel, host::SET_OBJECT, &[class])
    }

    /// Waits until all that came before is done.
    pub fn wait_for_idle(&mut self) -> &mut Self {
        self.host(host::WFI, &[host::WFI_SCOPE_ALL])
    }

    /// Writes a value to memory, once all that came before is done.
    pub fn release(&mut self, address: u64, value: u32) -> &mut Self {
        self.semaphore(address, value, host::SEM_EXECUTE_RELEASE | host::SEM_EXECUTE_RELEASE_WFI)
    }

    /// Waits until a value in memory is this one or, with wrap-around, a later one. Other channels
    /// run meanwhile.
    pub fn acquire(&mut self, address: u64, value: u32) -> &mut Self {
        let wait = host::SEM_EXECUTE_ACQ_CIRC_GEQ | host::SEM_EXECUTE_ACQUIRE_SWITCH_TSG;
        self.semaphore(address, value, wait)
    }

    /// As [`Self::release`], of 64 bits: the address is a multiple of 8.
    pub fn release64(&mut self, address: u64, value: u64) -> &mut Self {
        let how = host::SEM_EXECUTE_RELEASE | host::SEM_EXECUTE_RELEASE_WFI;
        self.semaphore(address, value, how | host::SEM_EXECUTE_PAYLOAD_64BIT)
    }

    /// As [`Self::release64`], and writes the GPU's time behind it, in nanoseconds: 16 bytes at a multiple of 16.
    pub fn release_with_time(&mut self, address: u64, value: u64) -> &mut Self {
        let how = host::SEM_EXECUTE_RELEASE
            | host::SEM_EXECUTE_RELEASE_WFI
            | host::SEM_EXECUTE_RELEASE_TIMESTAMP;
        self.semaphore(address, value, how | host::SEM_EXECUTE_PAYLOAD_64BIT)
    }

    /// As [`Self::acquire`], of 64 bits.
    pub fn acquire64(&mut self, address: u64, value: u64) -> &mut Self {
        let how = host::SEM_EXECUTE_ACQ_CIRC_GEQ | host::SEM_EXECUTE_ACQUIRE_SWITCH_TSG;
        self.semaphore(address, value, how | host::SEM_EXECUTE_PAYLOAD_64BIT)
    }

    /// Waits for the counters that a sync file of another driver, process or channel stands for
    /// ([`AddressSpace::sync_points`]). Other channels run meanwhile.
    ///
    /// [`AddressSpace::sync_points`]: super::AddressSpace::sync_points
    pub fn acquire_points(&mut self, points: &[SyncPoint]) -> &mut Self {
        for point in points {
            self.acquire(point.gpu_address, point.threshold);
        }
        self
    }

    fn semaphore(&mut self, address: u64, value: impl Into<u64>, what: u32) -> &mut Self {
        let ([low, high], [value_low, value_high]) = (halves(address), halves(value.into()));
        self.host(host::SEM_ADDR_LO, &[low, high, value_low, value_high, what])
    }

    /// Copies bytes, with class 0xc7b5.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u64) -> &mut Self {
        // The length of a line has 32 bits; a part that ends on a page keeps the engine fast.
        const PART: u64 = 1 << 30;
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(PART);
            self.copy_lines(to + done, from + done, Lines::one(part as u32));
            done += part;
        }
        self
    }

    /// Copies lines that lie apart, with class 0xc7b5.
    pub fn copy_lines(&mut self, to: u64, from: u64, lines: Lines) -> &mut Self {
        let ([from_low, from_high], [to_low, to_high]) = (halves(from), halves(to));
        let Lines { length, count, from_pitch, to_pitch } = lines;
        let places = [from_high, from_low, to_high, to_low, from_pitch, to_pitch, length, count];
        let several = if count > 1 { copy::MULTI_LINE } else { 0 };
        self.method(Subchannel::Copy, copy::OFFSET_IN_UPPER, &places).launch_copy(several)
    }

    /// Fills words with a value, with class 0xc7b5.
    pub fn fill(&mut self, to: u64, value: u32, words: u32) -> &mut Self {
        let [to_low, to_high] = halves(to);
        self.method(Subchannel::Copy, copy::SET_REMAP_CONST_A, &[value])
            .method(Subchannel::Copy, copy::SET_REMAP_COMPONENTS, &[copy::FILL_WORDS])
            .method(Subchannel::Copy, copy::OFFSET_IN_UPPER, &[0, 0, to_high, to_low])
            // With remapping a line is counted in elements.
            .method(Subchannel::Copy, copy::LINE_LENGTH_IN, &[words, 1])
            .launch_copy(copy::REMAP)
    }

    fn launch_copy(&mut self, how: u32) -> &mut Self {
        let launch = copy::NON_PIPELINED | copy::FLUSH | copy::BOTH_PITCH | how;
        self.method(Subchannel::Copy, copy::LAUNCH_DMA, &[launch])
    }

    /// Sends bytes inside the commands, with class 0xc7c0.
    ///
    /// # Errors
    ///
    /// When there are none, or more than fit into one method.
    pub fn write(&mut self, to: u64, bytes: &[u8]) -> Result<&mut Self> {
        let words: Vec<u32> = bytes.chunks(4).map(word).collect();
        if words.is_empty() || words.len() > MOST {
            return Err(Error::invalid(format!(
                "{} bytes cannot be sent inside the commands: 1 to {} can",
                bytes.len(),
                MOST * 4
            )));
        }
        let [to_low, to_high] = halves(to);
        let place = [bytes.len() as u32, 1, to_high, to_low];
        self.method(Subchannel::Compute, compute::LINE_LENGTH_IN, &place).method(
            Subchannel::Compute,
            compute::LAUNCH_DMA,
            &[compute::LAUNCH_PITCH_FLUSH],
        );
        let subchannel = Subchannel::Compute as u32;
        Ok(self.raw(Step::Constant, subchannel, compute::LOAD_INLINE_DATA, &words))
    }

    /// Tells the shaders where they see shared and local memory.
    pub fn set_windows(&mut self, shared: u64, local: u64) -> &mut Self {
        let mut window = |method, [low, high]: [u32; 2]| {
            self.method(Subchannel::Compute, method, &[high, low]);
        };
        window(compute::SET_SHADER_SHARED_MEMORY_WINDOW_A, halves(shared));
        window(compute::SET_SHADER_LOCAL_MEMORY_WINDOW_A, halves(local));
        self
    }

    /// Gives the shaders their local memory: so many bytes for each TPC, which lie behind each other. A TPC needs, for
    /// each of its warps, 32 times what a thread has.
    ///
    /// # Errors
    ///
    /// When the size is 0 or no multiple of 32 KiB.
    pub fn set_local_memory(&mut self, address: u64, bytes_per_tpc: u64) -> Result<&mut Self> {
        const UNIT: u64 = 0x8000;
        const ALL_SMS: u32 = 0xff;
        if bytes_per_tpc == 0 || bytes_per_tpc % UNIT != 0 {
            return Err(Error::invalid(format!(
                "{bytes_per_tpc} bytes of local memory for a TPC cannot be: multiples of {UNIT} can"
            )));
        }
        let ([low, high], [size_low, size_high]) = (halves(address), halves(bytes_per_tpc));
        let size = [size_high, size_low, ALL_SMS];
        Ok(self
            .method(Subchannel::Compute, compute::SET_SHADER_LOCAL_MEMORY_A, &[high, low])
            .method(Subchannel::Compute, compute::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, &size))
    }

    /// Starts the kernel whose description ([`Launch::qmd`]) lies at an address.
    ///
    /// [`Launch::qmd`]: super::Launch::qmd
    ///
    /// # Errors
    ///
    /// When that is no multiple of 256, or does not fit.
    pub fn launch(&mut self, qmd: u64) -> Result<&mut Self> {
        let at = u32::try_from(qmd >> 8).ok().filter(|_| qmd % 256 == 0);
        let Some(at) = at else {
            return Err(Error::invalid(format!("no kernel can be described at {qmd:#x}")));
        };
        let start = compute::INVALIDATE_COPY_SCHEDULE;
        Ok(self.method(Subchannel::Compute, compute::SEND_PCAS_A, &[at]).method(
            Subchannel::Compute,
            compute::SEND_SIGNALING_PCAS2_B,
            &[start],
        ))
    }

    /// Adds the commands of another.
    pub fn extend(&mut self, other: &Push) -> &mut Self {
        self.words.extend_from_slice(&other.words);
        self
    }
}

/// A counter of host1x and what it has to reach, as the GPU sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncPoint {
    /// Its number.
    pub id: u32,
    /// What it has to reach, with wrap-around.
    pub threshold: u32,
    /// Where the GPU reads it.
    pub gpu_address: u64,
}

/// Lines of bytes that lie a pitch apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    /// Bytes of a line.
    pub length: u32,
    /// How many there are.
    pub count: u32,
    /// Bytes from line to line where they come from.
    pub from_pitch: u32,
    /// Bytes from line to line where they go.
    pub to_pitch: u32,
}

impl Lines {
    /// A single line.
    pub const fn one(length: u32) -> Self {
        Self { length, count: 1, from_pitch: length, to_pitch: length }
    }
}

/// The lower and the upper half.
fn halves(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

/// Up to four bytes as a word.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_a_header_and_its_data() {
        let mut push = Push::new();
        push.set_object(Subchannel::Copy, 0xc7b5).wait_for_idle();
        assert_eq!(push.words(), [0x2001_8000, 0xc7b5, 0x2001_001e, 1]);
    }

    #[test]
    fn a_semaphore_is_five_words() {
        let mut push = Push::new();
        push.release(0xff_1234_5678, 7);
        assert_eq!(push.words(), [0x2005_0017, 0x1234_5678, 0xff, 7, 0, 0x10_0001]);
    }

    #[test]
    fn a_semaphore_of_64_bits_has_both_halves() {
        let mut push = Push::new();
        push.release_with_time(0xff_1234_5670, 0x7_0000_0008).acquire64(16, 1);
        assert_eq!(push.words()[..6], [0x2005_0017, 0x1234_5670, 0xff, 8, 7, 0x310_0001]);
        assert_eq!(push.words()[6..], [0x2005_0017, 16, 0, 1, 0, 0x100_1003]);
    }

    #[test]
    fn local_memory_is_an_address_and_a_size() {
        let mut push = Push::new();
        push.set_local_memory(0x5_0001_0000, 0x1_0000_8000).unwrap();
        assert_eq!(push.words()[..3], [0x2002_21e4, 5, 0x1_0000]);
        assert_eq!(push.words()[3..], [0x2003_20b9, 1, 0x8000, 0xff]);
        assert!(push.set_local_memory(0, 0).is_err() && push.set_local_memory(0, 4096).is_err());
    }

    #[test]
    fn a_large_copy_is_cut() {
        let mut push = Push::new();
        push.copy(0, 0, (1 << 30) + 1);
        let launches = push.words().iter().filter(|word| **word == 0x2001_80c0).count();
        assert_eq!(launches, 2);
        assert!(Push::new().copy(0, 0, 0).is_empty());
    }

    #[test]
    fn inline_bytes_fill_words_from_the_right() {
        let mut push = Push::new();
        push.write(0x1_0000_0000, b"abcde").unwrap();
        assert_eq!(push.words()[1..5], [5, 1, 1, 0]);
        assert_eq!(push.words()[5..], [0x2001_206c, 0x11, 0x6002_206d, 0x6463_6261, 0x65]);
        assert!(Push::new().write(0, &[]).is_err());
        assert!(Push::new().write(0, &[0; 0x1fff * 4 + 1]).is_err());
    }

    #[test]
    fn long_data_goes_on_under_a_second_header() {
        let mut push = Push::new();
        push.method(Subchannel::Compute, 0, &vec![0; MOST + 1]);
        assert_eq!(push.words()[MOST + 1], 0x2001_2000 | MOST as u32);
    }
}
