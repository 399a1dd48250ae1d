//! The watch on the config file and on the files that it names.
//!
//! What matters is every entry on the way from the path to the file: the file's own name, and each symbolic link that
//! is followed. A ConfigMap changes by renaming a link two steps up (`..data`), an editor by renaming a new file over the
//! old one, a script by removing and writing it. So the folders of those entries are watched, not the file, and an
//! event counts when it names one of them; a log file beside the config does not. Which entries these are is looked up again
//! after every event.
//!
//! An event only says "look": after a short quiet the file is read, and the content decides
//! ([`Management::reload_if_changed`]). Without any event it is looked at every few seconds, which is all there is on file
//! systems that tell nothing.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::bounds;
use crate::management::Management;

const QUIET: Duration = Duration::from_millis(bounds::WATCH_QUIET_MS);
const BUSY: Duration = Duration::from_millis(bounds::WATCH_BUSY_MS);
const POLL: Duration = Duration::from_millis(bounds::WATCH_POLL_MS);

/// Watches until the runtime ends.
pub async fn run(management: Arc<Management>) {
    let changed = Arc::new(Notify::new());
    let mut eyes = Eyes::new(Arc::clone(&changed));
    let mut looked = None;
    loop {
        let config = management.config();
        let files: Vec<PathBuf> =
            std::iter::once(config.path.as_path()).chain(config.files()).map(Path::to_owned).collect();
        eyes.look_at(&files);
        if timeout(POLL, changed.notified()).await.is_ok() {
            let since = Instant::now();
            while since.elapsed() < BUSY && timeout(QUIET, changed.notified()).await.is_ok() {}
        } else if looked == Some(stamps(&files)) {
            continue;
        }
        looked = Some(stamps(&files));
        let managed = Arc::clone(&management);
        // Told there: logged and audited.
        if let Err(error) = tokio::task::spawn_blocking(move || managed.reload_if_changed()).await {
            tracing::error!(%error, "a reload of the changed config has panicked");
        }
    }
}

/// What shows cheaply that a file is another one, or has other content: device, inode, time of change, size.
type Stamp = (u64, u64, i64, i64, u64);

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    use std::os::unix::fs::MetadataExt;
    let stamp = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.size()))
    };
    files.iter().map(stamp).collect()
}

/// The system's watches.
struct Eyes {
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    entries: Arc<Mutex<HashSet<PathBuf>>>,
}

impl Eyes {
    fn new(changed: Arc<Notify>) -> Eyes {
        let entries: Arc<Mutex<HashSet<PathBuf>>> = Arc::default();
        let seen = Arc::clone(&entries);
        let tell = move |event: notify::Result<notify::Event>| {
            let matters = match event {
                Ok(event) => {
                    is_change(&event.kind) && {
                        let entries = seen.lock().unwrap_or_else(PoisonError::into_inner);
                        event.need_rescan() || event.paths.iter().any(|path| entries.contains(path))
                    }
                }
                Err(_) => true,
            };
            if matters {
                changed.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(tell);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "changes of the config file are looked for every {POLL:?} only");
        }
        Eyes { watcher: watcher.ok(), folders: BTreeSet::new(), entries }
    }

    /// Watches what leads to these files now.
    fn look_at(&mut self, files: &[PathBuf]) {
        let entries: HashSet<PathBuf> = files.iter().flat_map(|file| trail(file)).collect();
        let folders: BTreeSet<PathBuf> =
            entries.iter().filter_map(|entry| entry.parent()).map(Path::to_owned).collect();
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner) = entries;
        let Some(watcher) = &mut self.watcher else { return };
        for folder in self.folders.difference(&folders) {
            // A folder that is gone took its watch with it.
            let _ = watcher.unwatch(folder);
        }
        // Those watched already are asked for again: a folder that was removed and made anew has lost its watch.
        let watched = |folder: &PathBuf| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok();
        self.folders = folders.into_iter().filter(watched).collect();
    }
}

/// Whether an event can mean other content. Reading the file makes events too.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// The entries whose change can make a path lead to another file: its last one, and every symbolic link on the way,
/// each as an absolute path whose folder holds no link.
fn trail(path: &Path) -> Vec<PathBuf> {
    let Ok(absolute) = std::path::absolute(path) else { return Vec::new() };
    let mut left: VecDeque<OsString> = parts(&absolute);
    let mut here = PathBuf::from("/");
    let mut found = Vec::new();
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            here.pop();
            continue;
        }
        let entry = here.join(&part);
        match std::fs::read_link(&entry) {
            Ok(target) if links < bounds::WATCH_LINKS => {
                links += 1;
                found.push(entry);
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                for part in parts(&target).into_iter().rev() {
                    left.push_front(part);
                }
            }
            _ if left.is_empty() => found.push(entry),
            _ => here = entry,
        }
    }
    found
}

/// The names of a path, `..` included.
fn parts(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_trail_is_every_link_and_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let at = |name: &str| root.join(name);
        std::fs::create_dir_all(at("..1")).expect("made");
        std::fs::write(at("..1/gateway.yaml"), "x").expect("written");
        symlink("..1", at("..data")).expect("linked");
        symlink("..data/gateway.yaml", at("gateway.yaml")).expect("linked");
        symlink("../gateway.yaml", at("..1/round")).expect("linked");
        symlink(at("gateway.yaml"), at("far")).expect("linked");
        symlink("loop", at("loop")).expect("linked");
        let mapped = ["gateway.yaml", "..data", "..1/gateway.yaml"];
        for (path, want) in [
            ("..1/gateway.yaml", &["..1/gateway.yaml"][..]),
            ("gateway.yaml", &mapped),
            ("absent/gateway.yaml", &["absent/gateway.yaml"]),
            ("far", &["far", "gateway.yaml", "..data", "..1/gateway.yaml"]),
            ("..data/round", &["..data", "..1/round", "gateway.yaml", "..data", "..1/gateway.yaml"]),
        ] {
            let want: Vec<_> = want.iter().map(|name| at(name)).collect();
            assert_eq!(trail(&at(path)), want, "{path}");
        }
        assert_eq!(trail(&at("loop")).len(), bounds::WATCH_LINKS + 1);
    }
}
