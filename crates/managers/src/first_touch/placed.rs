//! Large pages where a place file requests them, as with madvise on Linux.

use addr::{PageSize, VirtAddr, VirtRange};
use os::Who;
use results::count::labels::Layout;

use super::FirstTouch;
use crate::place::{Kind, Mapped, Rules};

/// The rules of `os`; their sizes must be those of base pages and of madvise.
pub(super) fn rules(os: &description::Os, held: &[PageSize]) -> Result<Rules, String> {
    if os.place.is_empty() {
        return Ok(Rules::default());
    }
    if os.uniform {
        return Err(
            "os.uniform gives all pages one size, so os.place has no effect: leave os.uniform or \
             os.place out"
                .to_owned(),
        );
    }
    let mut sizes = vec![os.base(), description::Os::ADVISED];
    sizes.retain(|size| held.contains(size));
    let rules = Rules::parse(&os.place, &sizes)?;
    if os.page_size.0 > os.base() && os.page_size.0 != description::Os::ADVISED {
        let advised = description::Os::ADVISED;
        return Err(format!(
            "os.place requests pages of {advised}: set os.page_size to {advised} or to the base \
             page"
        ));
    }
    match rules.waits() {
        Some(line) => Err(format!(
            "line {line}: the manager `first-touch` has no daemon that a fault could wait for: leave \
             `wait` out, or use os.manager = \"irix\""
        )),
        None => Ok(rules),
    }
}

impl FirstTouch {
    /// The page size that a rule requests at `addr`, if it is larger than the base page.
    pub(super) fn wished(&mut self, who: Who, addr: VirtAddr, layout: &Layout) -> Option<PageSize> {
        let large = self.large?;
        let everywhere = self.large_everywhere;
        if self.rules.is_empty() {
            return Some(large).filter(|_| everywhere);
        }
        let (page, base) = (addr.page(large), self.base);
        let regions = layout.regions(who.number);
        let region = regions.and_then(|regions| regions.region_at(addr.get()));
        let file = regions.and_then(|regions| {
            regions.locate(addr.get()).file.map(|number| regions.file(number).path.as_str())
        });
        let kind = region.map_or(Kind::Mmap, |region| Kind::of_region(region, file.is_some()));
        let name = file.or(region.map(|region| region.name.as_str())).unwrap_or_default();
        let mapped = Mapped { range: VirtRange::of_page(page), kind, name };
        let unless = if everywhere { large } else { base };
        self.rules.wish_for((who.number, page), &mapped, unless).filter(|size| *size == large)
    }
}
