//! From a text and `--set` arguments to a [`Description`], with errors that name the line.

use toml::{Table, Value};

use crate::{Description, Error};

/// Reads `text` and applies `settings` to it in order.
///
/// The text alone must be a whole description, so that a mistake in it is found at its line
/// whether or not a setting would have covered it.
pub(crate) fn apply(text: &str, origin: &str, settings: &[String]) -> Result<Description, Error> {
    let description: Description = toml::from_str(text).map_err(|error| Error::Description {
        origin: origin.to_owned(),
        line: error.span().map_or(1, |span| line_at(text, span.start)),
        what: error.message().replace('\n', "; "),
    })?;
    if settings.is_empty() {
        return Ok(description);
    }
    let mut table: Table = Table::try_from(&description)
        .map_err(|error| Error::Setting { setting: settings.join(" "), what: error.to_string() })?;
    let mut changed = description;
    for setting in settings {
        let wrong = |what: String| Error::Setting { setting: setting.clone(), what };
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| wrong("write KEY=VALUE, as in tlb.l2.entries=1536".to_owned()))?;
        set(&mut table, key.trim(), value.trim()).map_err(wrong)?;
        changed = table
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| wrong(error.message().replace('\n', "; ")))?;
    }
    Ok(changed)
}

/// Puts `value` at the dotted `key`; a numeric part indexes an array of tables.
fn set(table: &mut Table, key: &str, value: &str) -> Result<(), String> {
    let parts: Vec<&str> = key.split('.').collect();
    let Some((last, path)) = parts.split_last().filter(|_| parts.iter().all(|p| !p.is_empty()))
    else {
        return Err("write KEY=VALUE, as in tlb.l2.entries=1536".to_owned());
    };
    let mut table = table;
    let mut path = path.iter().peekable();
    while let Some(part) = path.next() {
        let entry = table.entry((*part).to_owned()).or_insert_with(|| Value::Table(Table::new()));
        table = match entry {
            Value::Table(inner) => inner,
            Value::Array(items) => {
                let index = path.next().ok_or_else(|| {
                    format!(
                        "{part} is a list: say which, from {part}.0 to {part}.{}",
                        items.len() - 1
                    )
                })?;
                index
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get_mut(index))
                    .and_then(Value::as_table_mut)
                    .ok_or_else(|| format!("{part} has no item {index}"))?
            }
            _ => return Err(format!("{part} is a value and holds no keys")),
        };
    }
    table.insert((*last).to_owned(), parse_value(value));
    Ok(())
}

/// A TOML value, or a bare word taken as a string: `fifo` needs no quotes.
fn parse_value(text: &str) -> Value {
    format!("x = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("x"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The error that `key` is `what`, at the setting that gave it or at its line in the text.
pub(crate) fn locate(
    text: &str,
    origin: &str,
    settings: &[String],
    key: &str,
    what: &str,
) -> Error {
    let what = format!("{key}: {what}");
    let table = key.rsplit_once('.').map_or("", |(table, _)| table);
    let given = |setting: &&String| {
        setting.split('=').next().is_some_and(|set| {
            set == key || (!table.is_empty() && set.starts_with(&format!("{table}.")))
        })
    };
    if let Some(setting) = settings.iter().rev().find(given) {
        return Error::Setting { setting: setting.clone(), what };
    }
    Error::Description { origin: origin.to_owned(), line: line_of(text, key), what }
}

/// The line of `key` in `text`, or of the nearest table above it.
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

fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|&byte| byte == b'\n').count() + 1
}
