//! Tests the errors for wrong machine files and settings. Each error is one line that says what is
//! wrong, where, and what to do.

use machine::{BUILTIN, Machine};

fn refusal(text: &str, settings: &[&str]) -> String {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    match Machine::parse("mine", text, "mine.toml", &settings) {
        Ok(_) => panic!("{settings:?} was accepted"),
        Err(error) => error.to_string(),
    }
}

fn tlb_only() -> String {
    BUILTIN.iter().find(|machine| machine.name == "tlb-only").unwrap().text.to_owned()
}

#[test]
fn a_wrong_file_is_refused_at_its_line() {
    // The replaced text, its replacement, the text of the line that the error must name, and a part
    // of the error.
    for (from, to, at, what) in [
        ("entries = 1024", "entires = 1024", "entires", "entires"),
        ("entries = 1024", "entries = 1023", "ways = 4", "1023 entries do not divide into sets"),
        ("entries = 1024", "entries = 0", "entries = 0", "it has no entries"),
        (
            "entries = 1024",
            "entries = -4",
            "entries = -4",
            "tlb.l2.entries: `-4` is not a whole number from 0 to 4294967295",
        ),
        (
            "entries = 1024",
            "entries = \"4K\"",
            "entries = \"4K\"",
            "tlb.l2.entries: `4K` is not a whole number: write it without a unit, as in 4096",
        ),
        ("ways = 4", "ways = \"four\"", "\"four\"", "tlb.l2.ways: `four` is not a number of ways"),
        ("ways = 4", "ways = 0", "ways = 0", "0 ways hold nothing"),
        ("page_size = \"4K\"", "page_size = 4096", "page_size", "with its unit"),
        ("page_size = \"4K\"", "page_size = \"4Q\"", "page_size", "not a page size"),
        ("page_size = \"4K\"", "page_size = \"3K\"", "page_size", "not a page size"),
        ("[os]", "[kernel]", "[kernel]", "kernel"),
        ("[tlb.l2]", "[tlb.l2", "[tlb.l2", ""),
        ("title =", "name =", "name =", "name"),
    ] {
        let text = tlb_only();
        assert!(text.contains(from), "{from}");
        let text = text.replacen(from, to, 1);
        let line = text[..text.rfind(at).unwrap()].matches('\n').count() + 1;
        let error = refusal(&text, &[]);
        assert!(error.starts_with(&format!("mine.toml:{line}: ")), "{to}: {error}");
        assert!(error.contains(what), "{to}: {error}");
        assert!(!error.contains('\n'), "{to}: {error}");
    }
}

#[test]
fn a_wrong_setting_is_refused_by_name() {
    for (setting, what) in [
        ("tlb.l2.entries", "write KEY=VALUE"),
        ("=3", "write KEY=VALUE"),
        ("tlb.l2.entires=4", "entires"),
        ("tlb.l9.entries=4", "l9"),
        ("tlb.l2.entries=many", "many"),
        ("tlb.l2.entries=7", "do not divide into sets of 4 ways"),
        ("tlb.l2.replacement=clairvoyant", "clairvoyant"),
        ("title.x=1", "it has no keys"),
        ("memory.size=4", "with its unit"),
        ("page_table.format=papyrus", "papyrus"),
        ("page_table.format=papyrus", "tsb, powerpc"),
        ("walker.enters=l9", "l9"),
        ("walker.enters=l2", "no such cache"),
        ("os.page_size=1B", "not a page size"),
    ] {
        let error = refusal(&tlb_only(), &[setting]);
        assert!(error.starts_with(&format!("--set {setting}: ")), "{setting}: {error}");
        assert!(error.contains(what), "{setting}: {error}");
        assert!(!error.contains('\n'), "{setting}: {error}");
    }
}

/// The error names the key and the value, and says which kind of value is expected.
#[test]
fn a_value_of_the_wrong_kind_is_told_with_its_key() {
    for (setting, what) in [
        ("tlb.l1d.entries=4K", "`4K` is not a whole number: write it without a unit, as in 4096"),
        ("tlb.l1d.entries=abc", "`abc` is not a whole number"),
        ("tlb.l1d.entries=1.5", "`1.5` is not a whole number"),
        ("tlb.l1d.entries=", "nothing is given, which is not a whole number"),
        ("tlb.l1d.entries=true", "`true` is not a whole number"),
        ("tlb.l1d.entries=[1, 2]", "a list is not a whole number"),
        ("tlb.l1d.entries={a = 1}", "a table is not a whole number"),
        ("tlb.l1d.entries=-1", "`-1` is not a whole number from 0 to 4294967295"),
        ("tlb.l1d.entries=9999999999", "`9999999999` is not a whole number from 0 to 4294967295"),
        (
            "tlb.l1d.ways=half",
            "`half` is not a number of ways: write a number without quotes, such as 8",
        ),
        ("tlb.l1d.ways=-1", "-1 is not a number of ways: write 1 or more, or \"full\""),
        ("tlb.l1d.page_sizes=4K", "`4K` is not a list: write it as [\"4K\"]"),
        ("tlb.l1d=4", "`4` is not a table: this key needs a table with keys of its own"),
        ("core.fetches=maybe", "`maybe` is neither true nor false"),
        ("core.cycles_per_instruction=few", "`few` is not a number"),
        ("title=4", "`4` is not text"),
        ("os.page_size=4096", "`4096` is no page size with its unit, such as \"4K\" or \"2M\""),
        ("memory.size=lots", "`lots` is not a size: write a whole number with B, K, M, G or T"),
    ] {
        let error = Machine::load("tlb-only", &[setting.to_owned()]).unwrap_err().to_string();
        let key = setting.split('=').next().unwrap();
        assert!(error.starts_with(&format!("--set {setting}: {key}: {what}")), "{error}");
    }
}

/// Settings are checked together: a cache is added key by key, and only all keys together describe
/// a cache. An error names the setting that causes it, whatever the order of the settings.
#[test]
fn settings_are_judged_together() {
    let cache = ["cache.l1d.size=4K", "cache.l1d.line=64B", "cache.l1d.ways=4"];
    let load = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Machine::load("tlb-only", &settings).map(|machine| machine.digest().to_owned())
    };
    let digest = load(&cache).unwrap();
    let reversed: Vec<&str> = cache.iter().rev().copied().collect();
    assert_eq!(load(&reversed).unwrap(), digest);
    // The error names the setting that causes it, wherever this setting stands among the others.
    for (settings, blamed, what) in [
        (&cache[..1], cache[0], "missing field `line`"),
        (&[cache[0], cache[1], "cache.l1d.wags=4"], "cache.l1d.wags=4", "no key `wags`"),
        (&["cache.l1d.size=much", cache[1]], "cache.l1d.size=much", "much"),
    ] {
        let error = load(settings).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--set {blamed}: ")), "{settings:?}: {error}");
        assert!(error.contains(what), "{settings:?}: {error}");
    }
}

#[test]
fn a_setting_that_is_nearly_right_is_guessed() {
    for (machine, setting, what) in [
        ("opteron-2008", "tlb.l2d.entres=512", "there is no key `entres` here"),
        ("opteron-2008", "tlb.l2d.entres=512", "did you mean `entries`?"),
        ("opteron-2008", "tbl.l2d.entries=512", "did you mean `tlb`?"),
        ("epyc", "os.page_size=2M", "did you mean `epyc-9005`?"),
        ("r7400", "os.page_size=2M", "did you mean `r4700`?"),
        ("xeon-6900p", "tlb.l1d.entries=64", "tlb.l1d.array.0.entries to tlb.l1d.array.2.entries"),
        ("xeon-6900p", "tlb.l1d.ways=4", "tlb.l1d.array.0.ways to tlb.l1d.array.2.ways"),
        ("xeon-6900p", "tlb.l1d.array.entries=64", "tlb.l1d.array is a list"),
        ("xeon-6900p", "tlb.l1d.array.9.entries=64", "tlb.l1d.array has no item 9"),
        ("xeon-6900p", "os.page_size.x=2M", "os.page_size is a value"),
        ("epyc-9005", "tlb.l2.entries=64", "because level 2 of this machine is split"),
        ("epyc-9005", "tlb.l2.entries=64", "describe tlb.l2i for a fetch, tlb.l2d for a load"),
        ("opteron-2008", "tlb.l1i.entries=64", "because core.fetches = false"),
    ] {
        let error = Machine::load(machine, &[setting.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(what), "{setting}: {error}");
        assert!(!error.contains('\n'), "{setting}: {error}");
    }
    let file = "title = \"t\"\nsource = \"s\"\n[tlb.l1]\nentires = 4\n";
    assert!(refusal(file, &[]).contains("did you mean `entries`?"));
}

/// Errors for keys whose value must be one of several words, in a setting and in a file.
#[test]
fn a_word_that_is_none_of_a_list_is_told_its_key_and_the_list() {
    let set = |setting: &str| {
        let settings = ["os.small.slot=256M".to_owned(), setting.to_owned()];
        Machine::load("pentium4", &settings).unwrap_err().to_string()
    };
    for (setting, what) in [
        ("os.small.revoke=purged", "write purge, versioned or groups; did you mean `purge`?"),
        ("os.small.schedule=fifo", "write first-come, lru or frequent"),
    ] {
        let (key, word) = setting.split_once('=').unwrap();
        let expected = format!("--set {setting}: {key}: there is no `{word}` here: {what}");
        assert_eq!(set(setting), expected);
    }
    let file = "title = \"t\"\nsource = \"s\"\n[os.small]\nslot = \"256M\"\nrevoke = \"fifo\"\n";
    let error = refusal(file, &[]);
    let expected = "5: os.small.revoke: there is no `fifo` here: write purge, versioned or groups";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn tables_that_settings_add_to_a_machine_are_known() {
    let added = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Machine::load("r4700", &settings).unwrap().added().to_vec()
    };
    assert_eq!(added(&["tlb.l1.entries=64", "os.populated=true"]), [""; 0]);
    assert_eq!(added(&["tlb.l1d.entries=48", "tlb.l1d.ways=4"]), ["tlb.l1d"]);
    assert_eq!(added(&["nested.tlb.entries=16"]), ["nested"]);
}

/// Errors for keys and page sizes that one page-table format has and another does not have.
#[test]
fn a_page_table_says_what_it_cannot_be() {
    let sizes = "tlb.l1.page_sizes=[\"4K\", \"8K\", \"2M\"]";
    for (settings, what) in [
        (&["page_table.format=mpt", "page_table.nodes=8"][..], "format mpt has no nodes"),
        (&["page_table.format=tsb", "page_table.table=9K"], "must be a power of two"),
        (
            &["page_table.format=clustered", "page_table.entry_pages=3"],
            "pages in an entry is 3, but must be a power of two",
        ),
        (&["page_table.format=linear", "page_table.software_tlb=8K"], "has no software_tlb"),
        (&["mmu_cache.design=utc", "mmu_cache.entries=8"], "software refills the TLB"),
        (
            &[
                "page_table.format=linear",
                "walker.kind=hardware",
                "mmu_cache.design=utc",
                "mmu_cache.entries=8",
            ],
            "the TLB itself holds the tables",
        ),
        (&["page_table.format=mpt", "os.page_size=2M", sizes], "holds pages of 4K, not 2M"),
        (
            &["page_table.format=hashed", "os.page_size=8K", sizes],
            "holds pages of 4K, 2M, 1G, not 8K",
        ),
    ] {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let error = Machine::load("r4700", &settings).unwrap_err().to_string();
        assert!(error.contains(what), "{settings:?}: {error}");
        assert!(!error.contains('\n'), "{settings:?}: {error}");
    }
}

#[test]
fn a_machine_that_does_not_exist_is_refused_with_the_names_of_those_that_do() {
    let error = Machine::load("opteron", &[]).unwrap_err().to_string();
    assert!(error.contains("opteron-2008") && error.contains("tlb-only"), "{error}");
    let error = Machine::load("./none.toml", &[]).unwrap_err().to_string();
    assert!(error.contains("./none.toml") && error.contains("cannot be read"), "{error}");
}

#[test]
fn every_builtin_machine_loads_and_names_its_sources() {
    for builtin in BUILTIN {
        Machine::load(builtin.name, &[]).unwrap_or_else(|error| panic!("{error}"));
        let table: toml::Table = builtin.text.parse().unwrap();
        for (key, value) in &table {
            let tables: Vec<(String, &toml::Table)> = match (key.as_str(), value) {
                ("tlb" | "cache", toml::Value::Table(named)) => named
                    .iter()
                    .map(|(name, table)| (format!("{key}.{name}"), table.as_table().unwrap()))
                    .collect(),
                (_, toml::Value::Table(table)) => vec![(key.clone(), table)],
                _ => continue,
            };
            for (name, table) in tables {
                let source = table.get("source").and_then(toml::Value::as_str).unwrap_or("");
                assert!(!source.is_empty(), "{}: [{name}] has no source", builtin.name);
            }
        }
    }
}

#[test]
fn a_setting_changes_the_digest_and_a_comment_does_not() {
    let plain = Machine::parse("a", &tlb_only(), "a.toml", &[]).unwrap();
    let commented = Machine::parse("a", &(tlb_only() + "# a comment\n"), "a.toml", &[]).unwrap();
    let set = ["tlb.l2.ways=8".to_owned()];
    let changed = Machine::parse("a", &tlb_only(), "a.toml", &set).unwrap();
    assert_eq!(plain.digest(), commented.digest());
    assert_ne!(plain.digest(), changed.digest());
}

#[test]
fn a_machine_has_few_processors_and_contexts_for_them() {
    let text = format!("{}\n[core]\ncount = 65\n", tlb_only());
    let line = text.lines().count();
    assert_eq!(
        refusal(&text, &[]),
        format!("mine.toml:{line}: core.count: a machine has 1 to 64 processors, not 65")
    );
    assert_eq!(
        refusal(&tlb_only(), &["core.count=0"]),
        "--set core.count=0: core.count: a machine has 1 to 64 processors, not 0"
    );
    let shared = ["core.count=5", "core.asid_bits=2", "core.contexts=lru"];
    let said = refusal(&tlb_only(), &shared);
    assert!(
        said.contains("5 processors share 4 contexts") && said.contains("write 3 bits or more"),
        "{said}"
    );
}

/// If settings contradict a key of a built-in machine, the error gives the machine's name and the
/// settings, because the user has no file of the machine.
#[test]
fn a_built_in_machine_that_settings_contradict_is_named_with_them() {
    let settings = ["page_table.format=hashed".to_owned(), "core.count=2".to_owned()];
    let error = Machine::load("epyc-9005", &settings).unwrap_err().to_string();
    let begins = "the built-in machine epyc-9005 with --set page_table.format=hashed \
                  --set core.count=2: mmu_cache";
    assert!(error.starts_with(begins), "{error}");
    let builtin = BUILTIN.iter().find(|builtin| builtin.name == "epyc-9005").unwrap();
    let table = builtin.text.lines().position(|line| line == "[mmu_cache]").unwrap();
    // The first key of the table is `design`, in the line below its header.
    let line = table + 2;
    let ends = format!(" (line {line} of the output of `pagewalk machines epyc-9005`)");
    assert!(error.ends_with(&ends), "{error}");
    // A machine file on the disk is named by its path and the line.
    let error = Machine::parse("mine", builtin.text, "mine.toml", &settings).unwrap_err();
    assert!(error.to_string().starts_with(&format!("mine.toml:{line}: mmu_cache")), "{error}");
}
