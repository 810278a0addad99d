//! The file that backs a mapping, and the name of its region in results.

use std::collections::BTreeMap;

use trace::FileId;
use vm::FileKey;

/// The device number of files that the trace identifies only by path.
const BY_PATH: u64 = u64::MAX;
/// The device number of shared-memory segments that the trace identifies only by number.
const BY_SEGMENT: u64 = u64::MAX - 1;
/// The largest number of region names that are counted separately; all other regions are counted
/// together.
const NAMES_MAX: usize = 256;

/// The numbers of files and names.
#[derive(Default)]
pub(super) struct Files {
    paths: BTreeMap<String, u64>,
    names: Vec<String>,
    labels: BTreeMap<String, u32>,
}

impl Files {
    /// The file of a mapping, if the trace identifies it.
    pub(super) fn key(&mut self, file: Option<&FileId>, path: Option<&str>) -> Option<FileKey> {
        match (file, path) {
            (Some(file), _) => Some(FileKey { device: file.device, inode: file.inode }),
            (None, Some(path)) => {
                let next = self.paths.len() as u64;
                let inode = *self.paths.entry(path.to_owned()).or_insert(next);
                Some(FileKey { device: BY_PATH, inode })
            }
            (None, None) => None,
        }
    }

    /// The file key of a segment of shared memory.
    pub(super) fn segment(&mut self, file: Option<&FileId>, id: i32) -> FileKey {
        let by_number = FileKey { device: BY_SEGMENT, inode: u64::from(id as u32) };
        self.key(file, None).unwrap_or(by_number)
    }

    /// The label of regions called `name`.
    pub(super) fn label(&mut self, name: &str) -> u32 {
        let name = name.rsplit('/').next().unwrap_or(name);
        if let Some(&label) = self.labels.get(name) {
            return label;
        }
        let label = self.names.len().min(NAMES_MAX) as u32;
        if self.names.len() <= NAMES_MAX {
            let full = self.names.len() == NAMES_MAX;
            self.names.push(if full { "others".to_owned() } else { name.to_owned() });
            self.labels.insert(self.names[label as usize].clone(), label);
        }
        label
    }

    /// The name of regions with this label.
    pub(super) fn name(&self, label: u32) -> String {
        self.names.get(label as usize).cloned().unwrap_or_default()
    }
}
