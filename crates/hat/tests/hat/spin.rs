//! Tests of the spin locks for a kernel.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use hat::locking::{Class, Locks, Rw, Site, Spin};

/// While a writer waits for a reader, no other reader gets the lock: otherwise the writer could
/// wait forever.
#[test]
fn no_reader_passes_a_writer() {
    let lock = <Spin as Locks>::Rw::new(Class::Space, false);
    let readers = AtomicUsize::new(0);
    let come = || readers.load(Ordering::Relaxed);
    let is_shut = thread::scope(|scope| {
        lock.read(Site::Look, |_| {
            scope.spawn(|| {
                while lock.read(Site::Look, |is_written| {
                    readers.fetch_add(1, Ordering::Relaxed);
                    !is_written
                }) {}
            });
            while come() == 0 {
                thread::yield_now();
            }
            scope.spawn(|| lock.write(Site::Look, |is_written| *is_written = true));
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(1) {
                let before = come();
                thread::sleep(Duration::from_millis(50));
                if come() == before {
                    return true;
                }
            }
            false
        })
    });
    assert!(is_shut, "{} readers have come beside a writer that waits", come());
}
