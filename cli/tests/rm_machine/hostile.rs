//! A program that calls at random, and one beside it that goes on working.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nvabi_test::Random;

use crate::client::*;
use crate::faulting::{Faulting, Served};
use crate::lab::{Done, Lab, PASSED, Program, TAKEN, play, until_input_ends};

/// How many calls are made, where `NVABI_MACHINE_CALLS` says nothing else.
const CALLS: u32 = 100_000;

/// Commands of 550.163.01 about instances, which no spec has, with the sizes of their parameters: the mode, making,
/// asking.
const OF_INSTANCES: [(u32, usize); 6] = [
    (0x2080_0183, 4),
    (0x2080_0174, 392),
    (0x2080_0175, 1864),
    (0x2080_0181, 280),
    (0x2080_01a2, 124),
    (0x2080_018b, 40),
];

/// How long so many may take: on a slow machine some 1,000 are made in a second.
fn deadline(calls: u32) -> Duration {
    Duration::from_secs(600) + Duration::from_millis(10) * calls
}

fn calls() -> u32 {
    let told = std::env::var("NVABI_MACHINE_CALLS").ok();
    told.and_then(|calls| calls.parse().ok()).unwrap_or(CALLS)
}

/// Controls with parameters that are random or, of the right size, a few bytes away from zeros: most of them of
/// commands that are answered, on objects that take them, others of every number and on any object. Between them
/// escapes, allocations and UVM requests of random bytes.
fn attack() {
    let (client, device, subdevice) = Client::with_device();
    let uvm_file = open("/dev/nvidia-uvm").unwrap();
    let objects = [client.handle, device, subdevice, 0, 0xffff_ffff];
    let object_of = |number: u32| match number >> 16 {
        0x0080 => device,
        0x2080 => subdevice,
        _ => client.handle,
    };
    let mut bytes = vec![0_u8; 1 << 14];
    let all = driver().calls().control.iter().copied().flatten();
    let all = all.map(|command| (command.number, size_of_params(command.params)));
    let all: Vec<(u32, usize)> = all.chain(OF_INSTANCES).collect();
    let mut answered = all.clone();
    answered.retain(|(number, size)| {
        let (address, object) = (bytes.as_mut_ptr() as u64, object_of(*number));
        *size <= bytes.len()
            && control(&client, object, *number, address, *size) != Ok(status::NOT_SUPPORTED)
    });
    answered.extend(OF_INSTANCES);
    println!("{} of {} commands are answered", answered.len(), all.len());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let calls = calls();
    for call in 0..calls {
        let commands = if random.below(4) == 0 { &all } else { &answered };
        let (own, own_size) = commands[random.below(commands.len())];
        let object = match random.below(8) {
            0 => objects[random.below(objects.len())],
            _ => object_of(own),
        };
        let size = match random.below(8) {
            0 => random.below(bytes.len()),
            _ => own_size.min(bytes.len()),
        };
        bytes.fill(0);
        if random.below(2) == 0 {
            random.fill(&mut bytes[..size]);
        } else if size > 0 {
            for _ in 0..4 {
                bytes[random.below(size.min(64))] = random.next() as u8;
            }
        }
        let address = if random.below(50) == 0 { random.next() } else { bytes.as_mut_ptr() as u64 };
        match random.below(20) {
            0 => {
                let number = random.next() as u32 & 0xff;
                let _ = raw(client.fd, request(number, 1 << 10), &mut bytes);
            }
            1 => {
                let _ = raw(uvm_file, random.next() & 0xff, &mut bytes);
            }
            2 => {
                let mut args = Struct::new("NVOS21_PARAMETERS");
                random.fill(&mut args.bytes);
                args.set("hRoot", client.handle.into());
                args.set("hObjectParent", object.into());
                let _ = escape(client.fd, 0x2b, &mut args);
            }
            // A number that is one bit away from a known one.
            3 => {
                let number = own ^ 1 << random.below(32);
                let _ = control(&client, object, number, address, size);
            }
            _ => {
                let _ = control(&client, object, own, address, size);
            }
        }
        if call % 1000 == 0 {
            println!("made {call}");
        }
    }
}

/// Bytes of a command's parameters.
fn size_of_params(names: &[&str]) -> usize {
    let layout = names.first().and_then(|name| driver().layout(name));
    layout.map_or(0, |layout| layout.size as usize)
}

/// A control whose outcome may be anything: its status.
fn control(client: &Client, object: u32, cmd: u32, address: u64, size: usize) -> Result<u32, i32> {
    let mut args = Struct::new("NVOS54_PARAMETERS")
        .with("hClient", client.handle.into())
        .with("hObject", object.into())
        .with("cmd", cmd.into())
        .with("params", address)
        .with("paramsSize", size as u64);
    escape(client.fd, 0x2a, &mut args)?;
    Ok(args.get("status") as u32)
}

/// Makes the same calls again and again until its input ends, and says how long the longest took.
fn work() {
    let (client, device, _) = Client::with_device();
    println!("works");
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    until_input_ends(|| {
        let start = Instant::now();
        let mut params = Struct::new("NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS");
        let status =
            client.control(client.handle, "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", &mut params);
        assert_eq!((status, params.get("gpuIds[0]")), (0, 0x100));
        let mut params = memory_params(VIDEO_MEMORY, 1 << 20);
        let memory = client.alloc(device, VIDEO_MEMORY, Some(&mut params)).unwrap();
        assert_eq!(client.free(memory), 0);
        longest = longest.max(start.elapsed());
        rounds += 1;
    });
    println!("longest of {rounds} rounds: {} ms", longest.as_millis());
}

#[test]
fn random_calls_harm_nobody() {
    const TEST: &str = "rm_machine::hostile::random_calls_harm_nobody";
    play("attack", attack);
    play("work", work);
    let lab = Lab::up(&["--gpu", "h100"]);
    let machine = lab.status()["pid"].clone();
    let (worker, _) = Program::begin(lab.client(TEST, "work"), |line| line == "works");
    let start = Instant::now();
    let mut attack = lab.client(TEST, "attack");
    let attack = std::thread::spawn(move || -> Done { attack.output().unwrap().into() });
    loop {
        assert_eq!(lab.sh("exit 5").code, Some(5), "one that begins meanwhile");
        if attack.is_finished() {
            break;
        }
        // The machine ends it, and with it this test.
        assert!(start.elapsed() < deadline(calls()), "it does not end");
    }
    let attacked = attack.join().unwrap();
    assert_eq!(
        attacked.code,
        Some(PASSED),
        "{} {}",
        attacked.out,
        attacked.told.lines().last().unwrap_or("")
    );
    println!("{} calls in {:.1} s", calls(), start.elapsed().as_secs_f64());
    let worked = worker.end();
    assert_eq!(worked.code, Some(PASSED), "{} {}", worked.out, worked.told);
    println!("{}", worked.out.lines().find(|line| line.starts_with("longest")).unwrap());
    assert_eq!(lab.status()["pid"], machine);
    assert_eq!(lab.sh("exit 5").code, Some(5));
    lab.programs(0);
    assert_eq!(lab.status()["gpus"][0]["used"], 0);
}

/// Lets who touches its memory, or asks for its files, wait until its input ends: that never comes.
fn block() {
    let (client, faulting) = (Client::new(), Faulting::new());
    let served = Served::mount().unwrap();
    served.stop();
    // A look that waits keeps its owner from mapping memory, and with it from making threads.
    let begin = Arc::new(AtomicBool::new(false));
    let beside = |call: Box<dyn FnOnce() + Send>| {
        let begin = begin.clone();
        std::thread::spawn(move || {
            while !begin.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            call();
        });
    };
    let paths = [faulting.as_ref().map(|faulting| faulting.page), Some(served.page(0))];
    for path in paths.into_iter().flatten() {
        beside(Box::new(move || unsafe {
            libc::open(path as *const libc::c_char, libc::O_RDONLY);
        }));
    }
    let (file, argument) = (served.file, served.page(1));
    beside(Box::new(move || unsafe {
        libc::fstat(file, &mut std::mem::zeroed());
    }));
    println!("begins");
    begin.store(true, Ordering::Release);
    let call = || assert_eq!(raw_at(client.fd, request(0x2a, 32), argument), Err(libc::EFAULT));
    // More than are left waiting for one program.
    (0..100).for_each(|_| call());
    println!("blocks");
    until_input_ends(call);
}

#[test]
fn memory_that_never_answers_blocks_its_owner_alone() {
    const TEST: &str = "rm_machine::hostile::memory_that_never_answers_blocks_its_owner_alone";
    play("block", block);
    play("work", work);
    Served::needed();
    let lab = Lab::up(&[]);
    let (blocker, _) = Program::begin(lab.client(TEST, "block"), |line| line == "blocks");
    let begun = Instant::now();
    let (worker, _) = Program::begin(lab.client(TEST, "work"), |line| line == "works");
    assert_eq!(lab.sh("exit 5").code, Some(5), "one that begins meanwhile");
    let worked = worker.end();
    assert_eq!(worked.code, Some(PASSED), "{} {}", worked.out, worked.told);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let blocked = blocker.end();
    assert_eq!(blocked.code, Some(PASSED), "{} {}", blocked.out, blocked.told);
    lab.programs(0);
}

/// Milliseconds after which each of its pages is answered: fewer than let a call fail.
const SLOW: u32 = 9;

/// Makes calls whose arguments have to be read slowly: first as many as nobody minds, then a few until its input ends.
fn dawdle() {
    let (client, served) = (Client::new(), Served::mount().unwrap());
    let call = || {
        served.forget();
        (0..16).for_each(|page| {
            let _ = raw_at(client.fd, request(0x2a, 32), served.page(page));
        });
    };
    call();
    served.slow_down(SLOW);
    (0..8).for_each(|_| call());
    println!("dawdles");
    let mut calls = 0;
    until_input_ends(|| {
        call();
        calls += 16;
    });
    println!("calls: {calls}");
}

#[test]
fn memory_that_answers_slowly_keeps_nobody_waiting() {
    const TEST: &str = "rm_machine::hostile::memory_that_answers_slowly_keeps_nobody_waiting";
    play("dawdle", dawdle);
    play("work", work);
    Served::needed();
    let lab = Lab::up(&[]);
    let (slow, _) = Program::begin(lab.client(TEST, "dawdle"), |line| line == "dawdles");
    let (worker, _) = Program::begin(lab.client(TEST, "work"), |line| line == "works");
    std::thread::sleep(Duration::from_secs(1));
    let slow = slow.end();
    let worked = worker.end();
    for done in [&slow, &worked] {
        assert_eq!(done.code, Some(PASSED), "{} {}", done.out, done.told);
    }
    let number = |out: &str, before: &str| -> u32 {
        let (_, behind) = out.split_once(before).unwrap();
        behind.split_ascii_whitespace().next().unwrap().parse().unwrap()
    };
    let (calls, rounds) = (number(&slow.out, "calls: "), number(&worked.out, "longest of "));
    println!("{calls} slow calls beside {rounds} rounds of five");
    // Who waited for each slow call would have made a fifth as many rounds.
    assert!(2 * rounds > calls, "{calls} slow calls beside {rounds} rounds of five");
}

/// Makes more diagnostics than a socket holds, when it is told.
fn shout() {
    let client = Client::new();
    println!("ready");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    for number in 0..4000 {
        client.control_with(client.handle, 0x7ff_0000 + number, 0, 0);
    }
    println!("shouted");
}

#[test]
fn a_command_that_does_not_read_holds_nobody() {
    const TEST: &str = "rm_machine::hostile::a_command_that_does_not_read_holds_nobody";
    play("shout", shout);
    let lab = Lab::up(&[]);
    let (mut program, _) = Program::begin(lab.client(TEST, "shout"), |line| line == "ready");
    program.tell(libc::SIGSTOP);
    program.child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    let mut line = String::new();
    program.out.read_line(&mut line).unwrap();
    assert_eq!(line, "shouted\n");
    lab.programs(0);
    program.tell(libc::SIGKILL);
    program.end();
}

/// Who talks to the socket badly harms itself.
#[test]
fn wrong_messages_harm_nobody() {
    let lab = Lab::up(&[]);
    let connect = || UnixStream::connect(lab.own_folder().join("socket")).unwrap();
    let request = b"22\x001\0true\0";
    let run = [b"r", (request.len() as u32).to_le_bytes().as_slice(), request].concat();
    let mut random = Random(1);
    let mut garbage = vec![0; 1 << 16];
    random.fill(&mut garbage);
    let wrong: [(&str, &[u8]); 7] = [
        ("nothing", b""),
        ("another letter", b"?\0\0\0\0"),
        ("half a head", b"s\0"),
        ("a long message", b"s\xff\xff\xff\xff"),
        ("half a request", &run[..run.len() - 1]),
        ("no descriptors", &run),
        ("garbage", &garbage),
    ];
    let mut kept = Vec::new();
    for (what, bytes) in wrong {
        let mut stream = connect();
        // It may be refused before all is sent.
        let _ = stream.write_all(bytes);
        kept.push(connect());
        let _ = kept.last_mut().unwrap().write_all(bytes);
        assert_eq!(lab.status()["name"], "lab", "{what}, and waiting");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = answer.strip_prefix(TAKEN).unwrap_or(&answer);
        assert!(answer.is_empty() || answer[0] == b'x', "{what}: {answer:?}");
        assert_eq!(lab.status()["name"], "lab", "{what}, and gone");
    }
    let with_bytes = [run.as_slice(), b"ffff"].concat();
    let mut stream = connect();
    stream.write_all(&with_bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = answer.strip_prefix(TAKEN).unwrap();
    assert_eq!(answer.first(), Some(&b'x'), "bytes without descriptors");
    // Many that ask, and never read.
    for _ in 0..100 {
        let mut stream = connect();
        stream.write_all(b"s\0\0\0\0").unwrap();
        kept.push(stream);
    }
    assert_eq!(lab.sh("exit 5").code, Some(5));
    lab.programs(0);
    assert_eq!(lab.rm(&["down", "lab"]).code, Some(0), "nobody who does not read holds it");
}
