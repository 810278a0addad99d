//! A file of code: its segments, its symbols and its DWARF.

use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{
    Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, SymbolFlags, SymbolKind, elf,
};

use crate::{Frame, Spot, instructions, names};

/// An open file.
pub(crate) struct Image {
    segments: Vec<Segment>,
    architecture: object::Architecture,
    /// The symbols, by ascending address.
    symbols: Vec<Symbol>,
    /// The DWARF of the file or of its separate debug file.
    dwarf: Option<Loader>,
}

struct Segment {
    offset: u64,
    address: u64,
    bytes: Vec<u8>,
}

struct Symbol {
    start: u64,
    /// The size of the function. 0 if it is unknown: in that case the symbol extends to the next
    /// one.
    bytes: u64,
    name: String,
}

/// Identifies the build of a file with these contents.
pub(crate) fn identity(contents: &[u8]) -> String {
    let file = object::File::parse(contents).ok();
    match file.and_then(|file| file.build_id().ok().flatten().map(hex)) {
        Some(id) => format!("build-id {id}"),
        None => format!("crc32 {:08x}", crc32fast::hash(contents)),
    }
}

impl Image {
    /// Opens the file at `path`. The error says why its functions have no names.
    pub(crate) fn open(
        path: &str,
        recorded: Option<&str>,
        debug_directories: &[PathBuf],
    ) -> Result<Image, String> {
        let Some(recorded) = recorded else {
            return Err(format!(
                "{path}: the trace does not say which build of this file ran, so its functions \
                 have no names; record the program again"
            ));
        };
        let contents = std::fs::read(path).map_err(|error| {
            format!("{path} cannot be read ({error}), so its functions have no names")
        })?;
        let now = identity(&contents);
        if now != recorded {
            return Err(format!(
                "{path} has changed since it was recorded (it was {recorded}, it is {now}), so \
                 its functions have no names; record the program again"
            ));
        }
        let damaged = |error| format!("{path} is not an ELF file that can be read: {error}");
        let file = object::File::parse(&*contents).map_err(damaged)?;
        let separate = separate(&file, Path::new(path), debug_directories);
        let mut symbols = symbols(&file);
        if let Some(contents) = separate.as_ref().and_then(|path| std::fs::read(path).ok())
            && let Ok(file) = object::File::parse(&*contents)
        {
            symbols.extend(self::symbols(&file));
        }
        symbols.sort_by(|a, b| (a.start, rank(&a.name)).cmp(&(b.start, rank(&b.name))));
        symbols.dedup_by_key(|symbol| symbol.start);
        let segment = |segment: object::Segment<'_, '_>| Segment {
            offset: segment.file_range().0,
            address: segment.address(),
            bytes: segment.data().unwrap_or_default().to_vec(),
        };
        let with_lines = separate.as_deref().unwrap_or(Path::new(path));
        Ok(Image {
            segments: file.segments().map(segment).collect(),
            architecture: file.architecture(),
            symbols,
            dwarf: dwarf(with_lines, debug_directories),
        })
    }

    /// The functions at `spot`, innermost first.
    pub(crate) fn frames(&self, spot: Spot<'_>) -> Option<Vec<Frame>> {
        let (segment, within) = self.segments.iter().find_map(|segment| {
            let within = spot.offset.checked_sub(segment.offset)?;
            (within < segment.bytes.len() as u64).then_some((segment, within))
        })?;
        let address = if spot.is_return {
            (segment.address + within).checked_sub(1)?
        } else {
            let code = &segment.bytes[within as usize..];
            let before = instructions::length(self.architecture, code, spot.instruction)?;
            segment.address + within + before
        };
        let mut frames = self.lines(address).unwrap_or_default();
        if let Some(symbol) = self.symbol(address) {
            if frames.is_empty() {
                frames.push(Frame::default());
            }
            let outermost = frames.last_mut()?;
            outermost.function = Some(symbol.name.clone());
        }
        Some(frames)
    }

    fn symbol(&self, address: u64) -> Option<&Symbol> {
        let end = self.symbols.partition_point(|symbol| symbol.start <= address);
        // A short symbol inside a longer one may end before the address, so a few earlier symbols
        // are tested too.
        let before = self.symbols[..end].iter().rev().take(4).enumerate();
        before
            .filter(|(distance, symbol)| match symbol.bytes {
                0 => *distance == 0,
                bytes => address - symbol.start < bytes,
            })
            .map(|(_, symbol)| symbol)
            .next()
    }

    /// Functions and lines from the DWARF; `None` if the DWARF has no data for the address or
    /// cannot be read.
    fn lines(&self, address: u64) -> Option<Vec<Frame>> {
        let mut found = self.dwarf.as_ref()?.find_frames(address).ok()?;
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let raw = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: raw.map(|raw| names::demangled(&raw)),
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line),
            });
        }
        Some(frames)
    }
}

/// The functions in the symbol tables, unsorted.
fn symbols(file: &object::File<'_>) -> Vec<Symbol> {
    let tables = [file.symbol_table(), file.dynamic_symbol_table()];
    let all = tables.into_iter().flatten().flat_map(|table| table.symbols());
    all.filter(|symbol| {
        let is_chosen_when_loaded = matches!(
            symbol.flags(),
            SymbolFlags::Elf { st_info, .. } if st_info.st_type() == elf::STT_GNU_IFUNC
        );
        let is_code = symbol.kind() == SymbolKind::Text || is_chosen_when_loaded;
        symbol.is_definition() && is_code && symbol.address() != 0
    })
    .filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty() && !name.starts_with('$'))?;
        let name = names::demangled(name);
        Some(Symbol { start: symbol.address(), bytes: symbol.size(), name })
    })
    .collect()
}

/// The key for choosing one of several names of a function. The name with the smallest key is
/// shown: for example `free` rather than `__libc_free`.
fn rank(name: &str) -> (usize, usize, &str) {
    (name.len() - name.trim_start_matches('_').len(), name.len(), name)
}

/// The separate file with the DWARF of `file`, if `file` itself has no DWARF.
fn separate(file: &object::File<'_>, path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    if file.has_debug_symbols() {
        return None;
    }
    let id = file.build_id().ok().flatten();
    let by_id = id.filter(|id| id.len() > 1).and_then(|id| {
        let (head, rest) = (hex(&id[..1]), hex(&id[1..]));
        let name = format!(".build-id/{head}/{rest}.debug");
        directories.iter().map(|folder| folder.join(&name)).find(|path| path.is_file())
    });
    by_id.or_else(|| {
        let (name, crc) = file.gnu_debuglink().ok().flatten()?;
        let name = std::str::from_utf8(name).ok()?;
        let folder = path.parent()?;
        let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        places.extend(directories.iter().map(|each| each.join(inside).join(name)));
        let fits =
            |place: &PathBuf| std::fs::read(place).is_ok_and(|it| crc32fast::hash(&it) == crc);
        places.into_iter().find(fits)
    })
}

/// The DWARF of the file at `path`, with the parts in supplementary files.
fn dwarf(path: &Path, directories: &[PathBuf]) -> Option<Loader> {
    let contents = std::fs::read(path).ok()?;
    let file = object::File::parse(&*contents).ok()?;
    let shared = file.gnu_debugaltlink().ok().flatten().and_then(|(name, id)| {
        let name = PathBuf::from(std::str::from_utf8(name).ok()?);
        let beside = path.parent()?.join(&name);
        let by_id = id.split_first().map(|(head, rest)| {
            format!(".build-id/{}/{}.debug", hex(std::slice::from_ref(head)), hex(rest))
        });
        let by_id =
            by_id.into_iter().flat_map(|name| directories.iter().map(move |d| d.join(&name)));
        [beside].into_iter().chain(by_id).find(|place| place.is_file())
    });
    Loader::new_with_sup(path, shared).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
