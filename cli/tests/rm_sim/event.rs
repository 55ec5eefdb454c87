//! Events: who is told of what, and by which file.

use std::thread;
use std::time::Duration;

use crate::client::status::*;
use crate::client::*;
use crate::rules;

/// NV2080_NOTIFIERS: SW, FIFO_EVENT_MTHD, TIMER.
const SOFTWARE: u64 = 0;
const HOST: u64 = 35;
const TIMER: u64 = 11;

/// Flags of an index: NV01_EVENT_WITHOUT_EVENT_DATA, NV01_EVENT_NONSTALL_INTR.
const WITHOUT_DATA: u64 = 0x1000_0000;
const OF_ENGINE: u64 = 0x0800_0000;

/// Lets the software's event happen.
fn trigger(client: &Client, subdevice: u32) {
    let cmd = command("NV2080_CTRL_CMD_EVENT_SET_TRIGGER");
    assert_eq!(client.control_with(subdevice, cmd, 0, 0), OK);
}

/// Lets the host tell one listener, or all: NV2080_CTRL_CMD_EVENT_SET_TRIGGER_FIFO.
fn trigger_host(client: &Client, subdevice: u32, event: u32) {
    let mut params = event.to_le_bytes();
    let address = params.as_mut_ptr() as u64;
    assert_eq!(client.control_with(subdevice, 0x2080_0308, address, 4), OK);
}

/// What a file tells: the object, the index, and whether there is more.
fn take(fd: Fd) -> Result<(u32, u64, bool), u32> {
    let (event, has_more) = next_event(fd)?;
    assert_eq!((event.get("info32"), event.get("info16")), (0, 0));
    Ok((event.get("hObject") as u32, event.get("NotifyIndex"), has_more))
}

const NOTHING: Result<(u32, u64, bool), u32> = Err(OPERATING_SYSTEM);

rules! {
    what_happens_is_told_in_order {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        let first = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!((is_readable(fd), take(fd)), (false, NOTHING), "nothing has happened");
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), OK);
        trigger(&client, subdevice);
        assert!(is_readable(fd) && is_readable(fd), "until it is taken");
        let second = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        trigger(&client, subdevice);
        assert_eq!(take(fd), Ok((first, SOFTWARE, true)));
        assert_eq!(take(fd), Ok((second, SOFTWARE, true)), "who came last is told first");
        assert!(is_readable(fd));
        assert_eq!(take(fd), Ok((first, SOFTWARE, false)));
        assert_eq!((is_readable(fd), take(fd)), (false, NOTHING));
    }

    a_gpu_s_own_file_tells_as_well {
        let (client, _, subdevice) = Client::with_device();
        let fd = open("/dev/nvidia0").unwrap();
        assert_eq!(os_event(ALLOC_OS_EVENT, &client, fd), OK);
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), OK);
        trigger(&client, subdevice);
        assert_eq!((is_readable(fd), take(fd)), (true, Ok((event, SOFTWARE, false))));
        let other = control_file();
        assert_eq!((is_readable(other), take(other)), (false, NOTHING), "no event was asked for on it");
    }

    who_waits_is_woken {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!(arm(&client, subdevice, SOFTWARE, SINGLE), OK);
        let waits = thread::spawn(move || poll(fd, 10_000));
        thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        trigger(&client, subdevice);
        assert!(waits.join().unwrap().is_some_and(|found| found & libc::POLLIN != 0));
        assert_eq!(take(fd), Ok((event, SOFTWARE, false)));
    }

    only_what_is_armed_is_told {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        trigger(&client, subdevice);
        assert_eq!(arm(&client, subdevice, HOST, REPEAT), OK);
        trigger(&client, subdevice);
        assert_eq!(take(fd), NOTHING, "it was not armed");
        assert_eq!(arm(&client, subdevice, SOFTWARE, SINGLE), OK);
        trigger(&client, subdevice);
        trigger(&client, subdevice);
        assert_eq!((take(fd), take(fd)), (Ok((event, SOFTWARE, false)), NOTHING), "once");
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), OK);
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), INVALID_STATE);
        assert_eq!(arm(&client, subdevice, SOFTWARE, SINGLE), INVALID_STATE);
        assert_eq!(arm(&client, subdevice, SOFTWARE, DISABLE), OK);
        trigger(&client, subdevice);
        assert_eq!(take(fd), NOTHING, "it was disarmed");
    }

    arming_is_refused {
        let (client, _, subdevice) = Client::with_device();
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), INVALID_STATE, "nobody listens");
        let fd = file_of(&client);
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!(arm(&client, subdevice, 0x1000, REPEAT), INVALID_ARGUMENT);
        assert_eq!(arm(&client, subdevice, TIMER, REPEAT), INVALID_ARGUMENT);
        assert_eq!(arm(&client, subdevice, SOFTWARE, 3), INVALID_ARGUMENT);
        assert_eq!(client.free(event), OK);
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), INVALID_STATE, "nobody listens any more");
    }

    who_is_gone_is_not_told {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), OK);
        trigger(&client, subdevice);
        assert_eq!(client.free(event), OK);
        trigger(&client, subdevice);
        assert_eq!(take(fd), Ok((event, SOFTWARE, false)), "what had happened can be taken");
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!(os_event(FREE_OS_EVENT, &client, fd), OK);
        assert_eq!(os_event(FREE_OS_EVENT, &client, fd), INVALID_EVENT);
        assert_eq!(os_event(ALLOC_OS_EVENT, &client, fd), OK);
        trigger(&client, subdevice);
        assert_eq!(take(fd), NOTHING, "{event:#x} was of the file's event before");
        unsafe { libc::close(fd) };
        let again = control_file();
        assert_eq!((again, os_event(ALLOC_OS_EVENT, &client, again)), (fd, OK), "it went with its file");
        trigger(&client, subdevice);
        assert_eq!(take(again), NOTHING);
    }

    what_has_no_data_is_gone_once_it_was_told {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        listen(&client, subdevice, SOFTWARE | WITHOUT_DATA, fd).unwrap();
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), OK);
        for _ in 0..2 {
            trigger(&client, subdevice);
            trigger(&client, subdevice);
            assert_eq!((is_readable(fd), take(fd)), (true, NOTHING));
            assert!(!is_readable(fd));
        }
        let event = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        trigger(&client, subdevice);
        assert!(is_readable(fd) && is_readable(fd), "that with data is there yet");
        assert_eq!(take(fd), Ok((event, SOFTWARE, false)));
        assert!(!is_readable(fd));
    }

    a_gpu_tells_all_its_clients {
        let (client, _, subdevice) = Client::with_device();
        let (other, _, theirs) = Client::with_device();
        let (fd, waits) = (file_of(&client), file_of(&other));
        listen(&client, subdevice, SOFTWARE, fd).unwrap();
        let event = listen(&other, theirs, SOFTWARE, waits).unwrap();
        assert_eq!(arm(&other, theirs, SOFTWARE, REPEAT), OK);
        trigger(&client, subdevice);
        assert_eq!((take(fd), take(waits)), (NOTHING, Ok((event, SOFTWARE, false))));
    }

    an_engine_tells_whom_it_is_to {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        let index = HOST | OF_ENGINE;
        let first = listen(&client, subdevice, index, fd).unwrap();
        let second = listen(&client, subdevice, index | WITHOUT_DATA, fd).unwrap();
        trigger_host(&client, subdevice, first);
        assert_eq!((take(fd), is_readable(fd)), (Ok((first, HOST, false)), false), "needs no arming");
        trigger_host(&client, subdevice, second);
        assert_eq!((take(fd), is_readable(fd), is_readable(fd)), (NOTHING, true, false));
        trigger_host(&client, subdevice, 0);
        assert_eq!((take(fd), is_readable(fd)), (Ok((first, HOST, false)), true));
        assert_eq!(listen(&client, subdevice, SOFTWARE | OF_ENGINE, fd), Err(NOT_SUPPORTED));
        assert_eq!(listen(&client, client.handle, index, fd), Err(INVALID_ARGUMENT));
    }

    an_event_listens_to_its_parent {
        let (client, device, subdevice) = Client::with_device();
        let fd = control_file();
        assert_eq!(listen(&client, subdevice, SOFTWARE, fd), Err(OBJECT_NOT_FOUND), "no event of the file");
        assert_eq!(os_event(ALLOC_OS_EVENT, &client, fd), OK);
        assert_eq!(os_event(ALLOC_OS_EVENT, &client, fd), INSUFFICIENT_RESOURCES);
        assert_eq!(listen(&client, device, SOFTWARE, fd), Err(INVALID_OBJECT), "it tells nothing");
        assert_eq!(listen(&client, 0x999, SOFTWARE, fd), Err(OBJECT_NOT_FOUND));
        assert!(listen(&client, client.handle, SOFTWARE, fd).is_ok());
        let mut asked = event_params(client.handle, SOFTWARE, fd).with("hSrcResource", 0x999);
        let event = client.alloc(subdevice, OS_EVENT, Some(&mut asked)).unwrap();
        assert_eq!(asked.get("hSrcResource") as u32, subdevice, "whatever was asked for");
        assert_eq!(listen(&client, event, SOFTWARE, fd), Err(INVALID_OBJECT));
        let callback = client.alloc(subdevice, CALLBACK_EVENT, Some(&mut asked));
        assert_eq!(callback, Err(ILLEGAL_ACTION));
        // The class may stand in the parameters alone, but must stand there.
        assert!(client.alloc(subdevice, 5, Some(&mut asked)).is_ok());
        for (class, status) in [(5, INVALID_CLASS), (SUBDEVICE, INVALID_CLASS), (CALLBACK_EVENT, ILLEGAL_ACTION)] {
            asked.set("hClass", class.into());
            assert_eq!(client.alloc(subdevice, 5, Some(&mut asked)), Err(status), "{class:#x}");
        }
    }

    an_event_of_another_client_s_object_is_right_below_its_own {
        let (client, _, subdevice) = Client::with_device();
        let (other, _, theirs) = Client::with_device();
        let fd = file_of(&client);
        let mut asked = event_params(other.handle, SOFTWARE, fd);
        let event = client.alloc(theirs, OS_EVENT, Some(&mut asked)).unwrap();
        assert_eq!(arm(&other, theirs, SOFTWARE, REPEAT), OK);
        trigger(&client, subdevice);
        assert_eq!(take(fd), Ok((event, SOFTWARE, false)));
        let absent = client.alloc(subdevice, OS_EVENT, Some(&mut event_params(0x77, SOFTWARE, fd)));
        assert!([Err(INVALID_OBJECT), Err(INVALID_OBJECT_HANDLE)].contains(&absent), "{absent:x?}");

        // Those that name no client are, too; those of their own go with their parent.
        let own = listen(&client, subdevice, SOFTWARE, fd).unwrap();
        let mut asked = event_params(0, SOFTWARE, fd);
        let nameless = client.alloc(subdevice, OS_EVENT, Some(&mut asked));
        assert_eq!(nameless.is_ok(), is_since(&[525]));
        assert_eq!(client.free(subdevice), OK);
        let taken = |handle| client.alloc_as(client.handle, handle, OS_EVENT, Some(&mut event_params(client.handle, 0, fd)));
        assert_eq!(taken(own), Ok(own));
        if let Ok(nameless) = nameless {
            assert_eq!(taken(nameless), Err(INSERT_DUPLICATE_NAME));
        }
        trigger(&other, theirs);
        assert_eq!(take(fd), Ok((event, SOFTWARE, false)), "that of the other client is there yet");
    }

    what_cannot_be_written_is_lost {
        let (client, _, subdevice) = Client::with_device();
        let fd = file_of(&client);
        listen(&client, subdevice, SOFTWARE, fd).unwrap();
        assert_eq!(arm(&client, subdevice, SOFTWARE, REPEAT), OK);
        trigger(&client, subdevice);
        let mut args = Struct::new("NVOS41_PARAMETERS").with("pEvent", 8);
        assert_eq!(escape(fd, 0x52, &mut args), Ok(()));
        assert_eq!(args.get("status") as u32, OPERATING_SYSTEM);
        assert_eq!((is_readable(fd), take(fd)), (false, NOTHING));
    }
}
