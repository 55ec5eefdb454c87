//! Events that a file tells of (A/osapi.c, R/event.c). Nothing ever happens to a simulated GPU, so none
//! of them comes.

use super::Driver;
use super::alloc::OS_EVENT;
use super::failed::Result;
use super::frontend::Caller;
use super::interface::Params;
use super::server::Kind;
use crate::sim::Status;
use crate::sim::files::FileId;

/// A file that a client asked to be told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OsEvent {
    client: u32,
    /// As the caller knows it.
    fd: u32,
    pub(super) file: FileId,
}

impl Driver {
    /// NV_ESC_ALLOC_OS_EVENT. A client has one event by a descriptor; the driver looks at neither.
    pub(super) fn alloc_os_event(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (client, fd) = (args.word("hClient")?, args.word("fd")?);
        if self.events.iter().any(|event| (event.client, event.fd) == (client, fd)) {
            return Err(Status::INSUFFICIENT_RESOURCES.into());
        }
        self.events.push(OsEvent { client, fd, file: caller.file });
        Ok(())
    }

    /// NV_ESC_FREE_OS_EVENT.
    pub(super) fn free_os_event(&mut self, args: &Params) -> Result {
        let (client, fd) = (args.word("hClient")?, args.word("fd")?);
        let found = self.events.iter().position(|event| (event.client, event.fd) == (client, fd));
        self.events.remove(found.ok_or(Status::INVALID_EVENT)?);
        Ok(())
    }

    /// NV_ESC_RM_GET_EVENT_DATA: there is none.
    pub(super) fn event_data(&self) -> Result {
        Err(Status::OPERATING_SYSTEM.into())
    }

    /// The events of a client that is gone (A/escape.c: NV_ESC_RM_FREE).
    pub(super) fn free_events_of(&mut self, client: u32) {
        self.events.retain(|event| event.client != client);
    }

    /// An object that stands for an event: R/event.c: `eventConstruct_IMPL`.
    pub(super) fn event(
        &self,
        class: u32,
        client: u32,
        params: Option<&mut Params>,
    ) -> Result<Kind> {
        let params = params.ok_or(Status::INVALID_ARGUMENT)?;
        if [0x78, 0x7e].contains(&class) {
            // A function of the kernel's is nothing that a process can give.
            return Err(Status::ILLEGAL_ACTION.into());
        }
        let source = match params.word("hParentClient")? {
            0 => client,
            other => other,
        };
        self.server.find(source)?.object(params.word("hSrcResource")?)?;
        if class == OS_EVENT {
            let fd = params.get("data")? as u32;
            let mut events = self.events.iter();
            events
                .find(|event| (event.client, event.fd) == (client, fd))
                .ok_or(Status::OBJECT_NOT_FOUND)?;
        }
        Ok(Kind::Event)
    }
}
