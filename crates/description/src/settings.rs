//! Reads a text and `--set` arguments into a [`Description`]. Errors name the line or the argument.

use toml::{Table, Value};

use super::{Description, Error, builtin::BUILTIN, suggest, units::Bytes};

/// A description with settings applied.
pub struct Applied {
    /// The description, with the settings applied.
    pub description: Description,
    /// The tables, such as `tlb.l1d`, that the settings added.
    pub added: Vec<String>,
}

/// Reads `text` and applies `settings` to it in order. The result is checked after all settings, so
/// that hardware can be added key by key.
///
/// The text alone must be a valid description, so that an error in it is reported at its line,
/// whether or not a setting would have replaced the value.
pub fn apply(text: &str, origin: &str, settings: &[String]) -> Result<Applied, Error> {
    let description: Description = toml::from_str(text).map_err(|error| Error::Description {
        origin: origin.to_owned(),
        line: error.span().map_or(1, |span| line_at(text, span.start)),
        what: said(&error, error.span().and_then(|span| key_at(text, span.start))),
    })?;
    let mut added = Vec::new();
    if settings.is_empty() {
        return Ok(Applied { description, added });
    }
    let whole: Table = Table::try_from(&description)
        .map_err(|error| Error::Setting { setting: settings.join(" "), what: error.to_string() })?;
    let mut table = whole.clone();
    for setting in settings {
        let wrong = |what: String| Error::Setting { setting: setting.clone(), what };
        added.extend(put(&mut table, setting).map_err(wrong)?);
    }
    match table.try_into() {
        Ok(description) => Ok(Applied { description, added }),
        Err(error) => {
            let what = said(&error, None);
            Err(Error::Setting { setting: to_blame(&whole, settings, &what), what })
        }
    }
}

/// The setting that causes the error `what`: the first setting without which the error does not
/// occur. If there is no such setting, the result is all settings.
fn to_blame(whole: &Table, settings: &[String], what: &str) -> String {
    let is_blamed = |blamed: &&String| {
        let mut table = whole.clone();
        for setting in settings.iter().filter(|setting| setting != blamed) {
            // Each of these settings was already applied once without an error.
            let _ = put(&mut table, setting);
        }
        let without: Result<Description, toml::de::Error> = table.try_into();
        without.map_or_else(|error| said(&error, None) != what, |_| true)
    };
    settings.iter().find(is_blamed).cloned().unwrap_or_else(|| settings.join(" --set "))
}

/// Applies a setting `KEY=VALUE` to `table`. Returns the name of the table that had to be added for
/// the key, if any.
fn put(table: &mut Table, setting: &str) -> Result<Option<String>, String> {
    let (key, value) =
        setting.split_once('=').ok_or("write KEY=VALUE, as in tlb.l1d.entries=128")?;
    set(table, key.trim(), parse_value(value.trim()))
}

/// The description with `value` at `key`. The error states why this is not possible.
pub fn with(description: &Description, key: &str, value: &Value) -> Result<Description, String> {
    let mut table = Table::try_from(description).map_err(|error| error.to_string())?;
    set(&mut table, key, value.clone())?;
    table.try_into().map_err(|error| said(&error, None))
}

/// The parser's error on one line. For an unknown key, the line also has the known key that is most
/// similar. `key` is the key with the wrong value, if the text shows which key that is.
fn said(error: &toml::de::Error, key: Option<String>) -> String {
    let said = error.message().replace('\n', "; ");
    // The end of the parser's message if a value is wrong: "in `memory.aged`".
    let within = || {
        let all = error.to_string();
        all.lines().find(|line| line.starts_with("in `")).map(str::to_owned).unwrap_or_default()
    };
    let at = |key: Option<String>| {
        let key = key.or_else(|| within().split('`').nth(1).map(str::to_owned));
        key.map_or(String::new(), |key| format!("{key}: "))
    };
    // "unknown field `entres`, expected one of `entries`, `ways`, ..."
    let mut quoted = said.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(key) if said.starts_with("unknown field") => {
            let known: Vec<&str> = quoted.collect();
            format!(
                "there is no key `{key}` here; the keys are {}{}",
                known.join(", "),
                suggest::hint(key, known.iter().copied())
            )
        }
        Some(_) if said.starts_with("missing field") => {
            format!("{said} {}", within()).trim_end().to_owned() + ": add it"
        }
        // "unknown variant `often`, expected one of `lru`, `fifo`", "... expected `on` or `off`"
        Some(value) if said.starts_with("unknown variant") => {
            let known: Vec<&str> = quoted.collect();
            let choose = match known.as_slice() {
                [others @ .., last] if !others.is_empty() => {
                    format!("{} or {last}", others.join(", "))
                }
                all => all.concat(),
            };
            let hint = suggest::hint(value, known.iter().copied());
            format!("{}there is no `{value}` here: write {choose}{hint}", at(key))
        }
        _ => format!("{}{}", at(key), of_another_kind(&said).unwrap_or(said)),
    }
}

/// The parser's error for a value of the wrong type or out of range, in Pagewalk's words.
///
/// Examples of the parser's errors: `invalid type: string "4K", expected u32` and ``invalid value:
/// integer `-1`, expected u32``.
fn of_another_kind(said: &str) -> Option<String> {
    let is_outside = said.starts_with("invalid value: ");
    let rest = said.strip_prefix("invalid value: ").or(said.strip_prefix("invalid type: "))?;
    let (given, expected) = rest.split_once(", expected ")?;
    let quoted = |quote: char| {
        let (first, last) = (given.find(quote)?, given.rfind(quote)?);
        given.get(first + 1..last)
    };
    let text = quoted('"').filter(|_| given.starts_with("string"));
    let value = text.or_else(|| quoted('`'));
    let shown = value.map_or_else(
        || match given {
            "sequence" => "a list".to_owned(),
            "map" => "a table".to_owned(),
            _ => given.to_owned(),
        },
        |value| match value {
            "" => "nothing is given, which".to_owned(),
            value => format!("`{value}`"),
        },
    );
    let end = match expected {
        "u8" => Some(u64::from(u8::MAX)),
        "u16" => Some(u64::from(u16::MAX)),
        "u32" => Some(u64::from(u32::MAX)),
        // A whole number in a TOML file cannot be larger than this.
        "u64" | "usize" => Some(i64::MAX as u64),
        _ => None,
    };
    Some(match (end, expected) {
        (Some(end), _) if is_outside => format!("{shown} is not a whole number from 0 to {end}"),
        (Some(_), _) => match text.and_then(Bytes::parse) {
            Some(Bytes(bytes)) => {
                format!("{shown} is not a whole number: write it without a unit, as in {bytes}")
            }
            None => format!("{shown} is not a whole number"),
        },
        (None, "f32" | "f64") => format!("{shown} is not a number"),
        (None, "a boolean") => format!("{shown} is neither true nor false"),
        (None, "a string") => format!("{shown} is not text"),
        (None, "a sequence") => {
            let item = text.map(|text| format!("\"{text}\"")).or(value.map(str::to_owned));
            let item = item.map_or(String::new(), |item| format!(": write it as [{item}]"));
            format!("{shown} is not a list{item}")
        }
        (None, kind) if kind == "a map" || kind.starts_with("struct ") => {
            format!("{shown} is not a table: this key needs a table with keys of its own")
        }
        (None, kind) => {
            let kind = kind.strip_prefix("a ").or(kind.strip_prefix("an ")).unwrap_or(kind);
            format!("{shown} is no {kind}")
        }
    })
}

/// Sets `value` at the dotted `key`; a numeric part is an index into an array of tables. Returns
/// the first table on the path that did not exist.
fn set(table: &mut Table, key: &str, value: Value) -> Result<Option<String>, String> {
    let parts: Vec<&str> = key.split('.').collect();
    let Some((last, path)) = parts.split_last().filter(|_| parts.iter().all(|p| !p.is_empty()))
    else {
        return Err("write KEY=VALUE, as in tlb.l1d.entries=128".to_owned());
    };
    let mut table = table;
    let mut added = None;
    let mut way = String::new();
    let mut path = path.iter().peekable();
    while let Some(part) = path.next() {
        if !way.is_empty() {
            way.push('.');
        }
        way.push_str(part);
        if !table.contains_key(*part) {
            added.get_or_insert_with(|| way.clone());
        }
        let entry = table.entry((*part).to_owned()).or_insert_with(|| Value::Table(Table::new()));
        table = match entry {
            Value::Table(inner) => inner,
            Value::Array(items) => {
                let index = path.next().ok_or_else(|| {
                    format!(
                        "{way} is a list: name one of its items, from {way}.0.{last} to \
                         {way}.{}.{last}",
                        items.len().saturating_sub(1)
                    )
                })?;
                let items_max = items.len().saturating_sub(1);
                index
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get_mut(index))
                    .and_then(Value::as_table_mut)
                    .ok_or_else(|| {
                        format!("{way} has no item {index}: its items are 0 to {items_max}")
                    })?
            }
            _ => return Err(format!("{way} is a value, not a table: it has no keys")),
        };
    }
    if let Some(Value::Array(items)) = table.get("array")
        && items.first().and_then(Value::as_table).is_some_and(|item| item.contains_key(*last))
    {
        let items_max = items.len().saturating_sub(1);
        return Err(format!(
            "{way} consists of several arrays: name one of them, from {way}.array.0.{last} to \
             {way}.array.{items_max}.{last}"
        ));
    }
    table.insert((*last).to_owned(), value);
    Ok(added)
}

/// A TOML value. A bare word is taken as a string: `fifo` needs no quotes.
fn parse_value(text: &str) -> Value {
    format!("x = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("x"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The inputs of a machine's description, in which errors are located.
#[derive(Debug)]
pub struct Written {
    /// The text of the machine file.
    pub text: String,
    /// The name of the file in errors.
    pub origin: String,
    /// The settings as given, in order.
    pub settings: Vec<String>,
}

impl Written {
    /// The error `what` about `key`. It names the setting that set the key or, if there is none,
    /// the key's line in the text.
    pub fn locate(&self, key: &str, what: &str) -> Error {
        let what = format!("{key}: {what}");
        let table = key.rsplit_once('.').map_or("", |(table, _)| table);
        let given = |setting: &&String| {
            setting.split('=').next().is_some_and(|set| {
                let around = key.strip_prefix(set).is_some_and(|rest| rest.starts_with('.'));
                set == key || around || (!table.is_empty() && set.starts_with(&format!("{table}.")))
            })
        };
        // A setting of the key itself is preferred to a setting of another key in the same table.
        let own = |setting: &&String| setting.split('=').next() == Some(key);
        let settings = || self.settings.iter().rev();
        if let Some(setting) = settings().find(own).or_else(|| settings().find(given)) {
            return Error::Setting { setting: setting.clone(), what };
        }
        let (line, origin) = (line_of(&self.text, key), self.origin.clone());
        if BUILTIN.iter().any(|builtin| builtin.name == origin) {
            return Error::BuiltIn { name: origin, line, settings: self.settings.clone(), what };
        }
        Error::Description { origin, line, what }
    }
}

/// The line of `key` in `text`, or of the nearest table that contains it.
fn line_of(text: &str, key: &str) -> usize {
    let Ok(document) = toml::de::DeTable::parse(text) else { return 1 };
    let mut line = 1;
    let mut table = Some(document.get_ref());
    let mut parts = key.split('.').peekable();
    while let (Some(part), Some(current)) = (parts.next(), table) {
        let Some((name, value)) = current.iter().find(|(name, _)| name.get_ref().as_ref() == part)
        else {
            break;
        };
        line = line_at(text, name.span().start);
        table = match value.get_ref() {
            toml::de::DeValue::Table(inner) => Some(inner),
            toml::de::DeValue::Array(items) => parts
                .next()
                .and_then(|index| index.parse::<usize>().ok())
                .and_then(|index| items.get(index))
                .and_then(|item| match item.get_ref() {
                    toml::de::DeValue::Table(inner) => {
                        line = line_at(text, item.span().start);
                        Some(inner)
                    }
                    _ => None,
                }),
            _ => None,
        };
    }
    line
}

/// The dotted key whose value contains byte `at` of `text`; items of lists have numbers.
fn key_at(text: &str, at: usize) -> Option<String> {
    use toml::de::DeValue;
    fn within(value: &toml::Spanned<DeValue<'_>>, at: usize, way: String) -> Option<String> {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table
                .iter()
                .find_map(|(name, value)| within(value, at, format!("{way}.{}", name.get_ref()))),
            DeValue::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(number, item)| within(item, at, format!("{way}.{number}"))),
            _ => return value.span().contains(&at).then_some(way),
        };
        inner.or_else(|| value.span().contains(&at).then_some(way))
    }
    let document = toml::de::DeTable::parse(text).ok()?;
    let of =
        |(name, value): (&toml::Spanned<_>, &_)| within(value, at, format!("{}", name.get_ref()));
    document.get_ref().iter().find_map(of)
}

fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|&byte| byte == b'\n').count() + 1
}
