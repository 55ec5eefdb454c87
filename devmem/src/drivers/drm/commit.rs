//! Whether a display shows a framebuffer: asked by an atomic commit that is tested and not made.
//!
//! That a framebuffer can be made is no proof: drivers look at formats, modifiers and addresses of what is shown
//! when it is shown.

use std::collections::HashMap;
use std::io;
use std::sync::PoisonError;

use drm::control::atomic::AtomicModeReq;
use drm::control::{
    AtomicCommitFlags, Device as _, Mode, RawResourceHandle, ResourceHandle, connector, crtc,
    framebuffer, plane, property,
};
use drm::{ClientCapability, Device as _};
use nix::libc;

use super::Card;
use crate::{Image, transform};

/// `None` where it cannot be asked: another program has the display, it knows no atomic commits, nothing is connected
/// that shows so many pixels, or no plane turns images like this.
pub(super) fn is_shown(
    card: &Card,
    framebuffer: framebuffer::Handle,
    image: &Image,
    turned: u32,
) -> Option<io::Result<()>> {
    // A file is master or not, whichever thread asked for that.
    let _alone = card.master.lock().unwrap_or_else(PoisonError::into_inner);
    card.acquire_master_lock().ok()?;
    let tested = tested(card, framebuffer, image, turned);
    // Who opens a display next becomes its master.
    let _ = card.release_master_lock();
    tested
}

fn tested(
    card: &Card,
    framebuffer: framebuffer::Handle,
    image: &Image,
    turned: u32,
) -> Option<io::Result<()>> {
    card.set_client_capability(ClientCapability::UniversalPlanes, true).ok()?;
    card.set_client_capability(ClientCapability::Atomic, true).ok()?;
    let resources = card.resource_handles().ok()?;
    let screen = |connector: &connector::Handle| {
        let known = card.get_connector(*connector, false).ok()?;
        let connected = known.state() == connector::State::Connected;
        Some(Screen { connector: *connector, connected, modes: known.modes().to_vec() })
    };
    let screens: Vec<Screen> = resources.connectors().iter().filter_map(screen).collect();
    let screens = fitting(&screens, size_on_screen(image, turned));
    let planes: Vec<(plane::Handle, plane::Info)> = (card.plane_handles().ok()?.into_iter())
        .filter(|plane| turned == transform::ROTATE_0 || turns(card, *plane, turned))
        .filter_map(|plane| Some((plane, card.get_plane(plane).ok()?)))
        .collect();
    let attempts = screens.iter().flat_map(|(connector, mode)| {
        let of_plane = |(plane, known): &(plane::Handle, plane::Info)| {
            let (connector, mode, plane) = (*connector, *mode, *plane);
            let crtcs = resources.filter_crtcs(known.possible_crtcs()).into_iter();
            crtcs.map(move |crtc| {
                Shown { card, framebuffer, image, turned, connector, mode, crtc, plane }.test()
            })
        };
        planes.iter().flat_map(of_plane)
    });
    any_shows(attempts)
}

fn turns(card: &Card, plane: plane::Handle, turned: u32) -> bool {
    card.transforms(plane).is_ok_and(|can| turned & !can == 0)
}

/// What may be connected.
struct Screen {
    connector: connector::Handle,
    connected: bool,
    modes: Vec<Mode>,
}

/// Each connected screen that has a mode of this size.
fn fitting(screens: &[Screen], size: (u32, u32)) -> Vec<(connector::Handle, Mode)> {
    let is_so = |mode: &&Mode| (u32::from(mode.size().0), u32::from(mode.size().1)) == size;
    let connected = screens.iter().filter(|screen| screen.connected);
    connected
        .filter_map(|screen| Some((screen.connector, *screen.modes.iter().find(is_so)?)))
        .collect()
}

/// Width and height of an image that is turned like this: by a quarter, they change places.
fn size_on_screen(image: &Image, turned: u32) -> (u32, u32) {
    match turned & (transform::ROTATE_90 | transform::ROTATE_270) {
        0 => (image.width, image.height),
        _ => (image.height, image.width),
    }
}

/// What came of all attempts: one that succeeds is enough. Of errors that say something of the framebuffer the first
/// tells most, as planes of cursors are not for this; where memory ran out, the others say nothing.
fn any_shows(attempts: impl Iterator<Item = io::Result<()>>) -> Option<io::Result<()>> {
    let (mut refusal, mut passing, mut is_known) = (None, None, true);
    for attempt in attempts {
        let Err(error) = attempt else { return Some(Ok(())) };
        match error.raw_os_error() {
            // Another program has the display now, or what it needs.
            Some(libc::EACCES | libc::EPERM | libc::EBUSY) => is_known = false,
            Some(libc::ENOMEM | libc::EAGAIN | libc::EINTR) => passing = passing.or(Some(error)),
            // Drivers say ENOSPC of bandwidth as well.
            _ => refusal = refusal.or(Some(error)),
        }
    }
    passing.or(refusal).filter(|_| is_known).map(Err)
}

/// All that a commit names.
struct Shown<'c> {
    card: &'c Card,
    framebuffer: framebuffer::Handle,
    image: &'c Image,
    turned: u32,
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
        let on = number(self.crtc.into());
        let (width, height) = size_on_screen(self.image, self.turned);
        // What is taken out of the image is as the image lies.
        let source = [
            ("SRC_X", 0),
            ("SRC_Y", 0),
            ("SRC_W", u64::from(self.image.width) << 16),
            ("SRC_H", u64::from(self.image.height) << 16),
        ];
        let screen = [
            ("CRTC_X", 0),
            ("CRTC_Y", 0),
            ("CRTC_W", u64::from(width)),
            ("CRTC_H", u64::from(height)),
        ];
        let plane = self.properties(self.plane)?;
        let shown = [("FB_ID", number(self.framebuffer.into())), ("CRTC_ID", on)];
        let mut values = [&shown[..], &source, &screen].concat();
        // Who had the display before may have left it turned. A plane without this shows images as they are.
        if plane.contains_key(ROTATION) || self.turned != transform::ROTATE_0 {
            values.push((ROTATION, u64::from(self.turned)));
        }
        add(&mut request, self.connector, &self.properties(self.connector)?, &[("CRTC_ID", on)])?;
        let lit = [("MODE_ID", mode), ("ACTIVE", 1)];
        add(&mut request, self.crtc, &self.properties(self.crtc)?, &lit)?;
        add(&mut request, self.plane, &plane, &values)?;
        Ok(request)
    }

    fn properties(&self, of: impl ResourceHandle) -> io::Result<Properties> {
        let known = self.card.get_properties(of)?;
        let named = known.iter().map(|(property, _)| {
            let name = self.card.get_property(*property)?.name().to_string_lossy().into_owned();
            Ok((name, *property))
        });
        named.collect()
    }
}

/// The properties of an object, by name.
type Properties = HashMap<String, property::Handle>;

/// How a plane turns what it shows: bits of [`transform`].
const ROTATION: &str = "rotation";

fn add(
    request: &mut AtomicModeReq,
    of: impl ResourceHandle,
    known: &Properties,
    values: &[(&str, u64)],
) -> io::Result<()> {
    for (name, value) in values {
        let property =
            known.get(*name).ok_or_else(|| io::Error::other(format!("no property {name}")))?;
        request.add_raw_property(of.into(), *property, *value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fourcc;

    fn mode(width: u16, height: u16) -> Mode {
        let unset = drm_ffi::drm_mode_modeinfo::default();
        drm_ffi::drm_mode_modeinfo { hdisplay: width, vdisplay: height, ..unset }.into()
    }

    #[test]
    fn every_connected_screen_is_tried() {
        let screen = |number: u32, connected, modes| Screen {
            connector: drm::control::from_u32(number).expect("not 0"),
            connected,
            modes,
        };
        let screens = [
            screen(1, false, vec![mode(640, 480)]),
            screen(2, true, vec![mode(1024, 768)]),
            screen(3, true, vec![mode(800, 600), mode(640, 480)]),
            screen(4, true, vec![mode(640, 480)]),
        ];
        let found = |size| -> Vec<u32> {
            fitting(&screens, size).iter().map(|(screen, _)| u32::from(*screen)).collect()
        };
        assert_eq!(found((640, 480)), [3, 4]);
        assert!(found((480, 640)).is_empty());
        let errno = |number| Err(io::Error::from_raw_os_error(number));
        let all = |attempts: Vec<io::Result<()>>| {
            any_shows(attempts.into_iter())
                .map(|shown| shown.map_err(|error| error.raw_os_error().unwrap_or_default()))
        };
        assert_eq!(all(vec![errno(libc::EINVAL), Ok(())]), Some(Ok(())));
        assert_eq!(all(vec![errno(libc::EINVAL), errno(libc::ERANGE)]), Some(Err(libc::EINVAL)));
        assert_eq!(all(vec![errno(libc::EBUSY)]), None);
        assert_eq!(all(vec![errno(libc::EINVAL), errno(libc::EACCES)]), None);
        assert_eq!(all(vec![errno(libc::EINVAL), errno(libc::EBUSY)]), None);
        assert_eq!(all(vec![errno(libc::EBUSY), errno(libc::EINVAL)]), None);
        assert_eq!(all(vec![errno(libc::EINVAL), errno(libc::ENOSPC)]), Some(Err(libc::EINVAL)));
        assert_eq!(all(vec![errno(libc::EBUSY), Ok(())]), Some(Ok(())));
        assert_eq!(all(vec![errno(libc::EINVAL), errno(libc::ENOMEM)]), Some(Err(libc::ENOMEM)));
        assert_eq!(all(Vec::new()), None);
    }

    #[test]
    fn an_image_turned_by_a_quarter_fills_a_screen_that_is_as_wide_as_it_is_high() {
        let image = Image::new(480, 640, Fourcc::new(b"XR24"));
        for (turned, size) in [
            (transform::ROTATE_0, (480, 640)),
            (transform::ROTATE_90, (640, 480)),
            (transform::ROTATE_180 | transform::REFLECT_X, (480, 640)),
            (transform::ROTATE_270 | transform::REFLECT_Y, (640, 480)),
        ] {
            assert_eq!(size_on_screen(&image, turned), size, "{turned}");
        }
    }
}
