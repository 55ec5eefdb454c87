//! Whether a display shows a framebuffer: asked by an atomic commit that is tested and not made.
//!
//! That a framebuffer can be made is no proof: drivers look at formats, modifiers and addresses of what is shown
//! when it is shown.

use std::io;

use drm::control::atomic::AtomicModeReq;
use drm::control::{
    AtomicCommitFlags, Device as _, Mode, RawResourceHandle, ResourceHandle, connector, crtc,
    framebuffer, plane, property,
};
use drm::{ClientCapability, Device as _};
use nix::libc;

use super::Card;
use crate::Image;

/// `None` where it cannot be asked: another program has the display, it knows no atomic commits, or nothing is
/// connected that shows so many pixels.
pub(super) fn is_shown(
    card: &Card,
    framebuffer: framebuffer::Handle,
    image: &Image,
) -> Option<io::Result<()>> {
    card.acquire_master_lock().ok()?;
    let tested = tested(card, framebuffer, image);
    // Who opens a display next becomes its master.
    let _ = card.release_master_lock();
    tested
}

fn tested(card: &Card, framebuffer: framebuffer::Handle, image: &Image) -> Option<io::Result<()>> {
    card.set_client_capability(ClientCapability::UniversalPlanes, true).ok()?;
    card.set_client_capability(ClientCapability::Atomic, true).ok()?;
    let resources = card.resource_handles().ok()?;
    let (connector, mode) = resources.connectors().iter().find_map(|connector| {
        let known = card.get_connector(*connector, false).ok()?;
        let size = |mode: &&Mode| {
            (u32::from(mode.size().0), u32::from(mode.size().1)) == (image.width, image.height)
        };
        let mode = known
            .modes()
            .iter()
            .find(size)
            .filter(|_| known.state() == connector::State::Connected);
        Some((*connector, *mode?))
    })?;
    let mut refusal = None;
    for plane in card.plane_handles().ok()? {
        let Ok(known) = card.get_plane(plane) else { continue };
        for crtc in resources.filter_crtcs(known.possible_crtcs()) {
            match (Shown { card, framebuffer, image, connector, mode, crtc, plane }).test() {
                Ok(()) => return Some(Ok(())),
                // Planes of cursors are not for this; the first error tells most.
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
    }
    let refusal = refusal?;
    match refusal.raw_os_error() {
        // Nothing is known of the framebuffer.
        Some(libc::EACCES | libc::EPERM | libc::EBUSY) => None,
        _ => Some(Err(refusal)),
    }
}

/// All that a commit names.
struct Shown<'c> {
    card: &'c Card,
    framebuffer: framebuffer::Handle,
    image: &'c Image,
    connector: connector::Handle,
    mode: Mode,
    crtc: crtc::Handle,
    plane: plane::Handle,
}

impl Shown<'_> {
    fn test(&self) -> io::Result<()> {
        let blob = self.card.create_property_blob(&self.mode)?;
        let blob = u64::from(blob);
        let tested = self.request(blob).and_then(|request| {
            let flags = AtomicCommitFlags::TEST_ONLY | AtomicCommitFlags::ALLOW_MODESET;
            self.card.atomic_commit(flags, request)
        });
        // Nobody is there to hear of it.
        let _ = self.card.destroy_property_blob(blob);
        tested
    }

    fn request(&self, mode: u64) -> io::Result<AtomicModeReq> {
        let mut request = AtomicModeReq::new();
        let number = |handle: RawResourceHandle| u64::from(u32::from(handle));
        let (width, height) = (u64::from(self.image.width), u64::from(self.image.height));
        let on = number(self.crtc.into());
        self.add(&mut request, self.connector, &[("CRTC_ID", on)])?;
        self.add(&mut request, self.crtc, &[("MODE_ID", mode), ("ACTIVE", 1)])?;
        let plane = [
            ("FB_ID", number(self.framebuffer.into())),
            ("CRTC_ID", on),
            ("SRC_X", 0),
            ("SRC_Y", 0),
            ("SRC_W", width << 16),
            ("SRC_H", height << 16),
            ("CRTC_X", 0),
            ("CRTC_Y", 0),
            ("CRTC_W", width),
            ("CRTC_H", height),
        ];
        self.add(&mut request, self.plane, &plane)?;
        Ok(request)
    }

    fn add(
        &self,
        request: &mut AtomicModeReq,
        of: impl ResourceHandle,
        values: &[(&str, u64)],
    ) -> io::Result<()> {
        let known = self.card.get_properties(of)?;
        for (name, value) in values {
            let is_it = |property: &property::Handle| {
                self.card
                    .get_property(*property)
                    .is_ok_and(|known| known.name().to_str() == Ok(*name))
            };
            let property = known.iter().map(|(property, _)| *property).find(is_it);
            let property =
                property.ok_or_else(|| io::Error::other(format!("no property {name}")))?;
            request.add_raw_property(of.into(), property, *value);
        }
        Ok(())
    }
}
