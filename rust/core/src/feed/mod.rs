//! Feeds items to DuckDB: lines of JSON that hold the named fields only, and the columns that they make up.
//!
//! A path selects a field: `[owner]` the whole field, `[owner, id]` one member of its objects. If all paths of a field
//! select members, only these members are written. The type is still inferred from the whole values. If it is not a
//! struct with all selected members, a second pass writes the field whole.
//!
//! The type of a column is inferred from every value. A column holds what Python's `json` would read: numbers are
//! exact, the last of equal keys counts, missing values are `NULL`, and values of different types are JSON. Only a lone
//! surrogate, which no database holds, becomes U+FFFD.
//!
//! Values are copied while their types are still unknown. For a few types DuckDB's reader must get them as strings: then,
//! too, [`Feed::finish`] asks for a second pass.

mod clean;
mod number;
mod selection;
mod shape;
mod walk;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::index::{self, ItemIndex};
use crate::reader::{Kind, Reader};
use crate::scan::Isa;
use crate::split::ItemSplitter;
use clean::{key_bytes, last_members};
use selection::Selection;
use shape::{Shape, is_identifier};
use walk::{Counters, Traits, Walk, next_member, take_key, usual_key};

/// Maximum number of columns of a table.
const MAX_COLUMNS: usize = 1000;

/// A thread that knows as many keys does not record more keys of fields that are not kept.
const MAX_KNOWN_KEYS: usize = 1000;

/// Name of the column for items that are not objects.
const NON_OBJECT_NAME: &str = "value";

/// Name of the column for an empty key.
const EMPTY_NAME: &str = "_";

/// A column of the table that the lines make up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name of the column: the key, with a number if another column has the same name but for its case.
    pub name: String,
    /// Type of the column in DuckDB.
    pub sql_type: String,
    /// Key of the values in the lines.
    pub key: String,
    /// Type to read the values with, before they are cast to `sql_type`.
    pub read_type: String,
}

/// Writer of lines for DuckDB. Chunks may be written in several threads.
#[derive(Debug)]
pub struct Feed {
    /// For each name in lower case, the paths of members below it; `None` for all fields.
    paths: Option<HashMap<String, Vec<Vec<String>>>>,
    /// Whether items that are not objects are kept.
    keeps_non_objects: bool,
    shared: Mutex<Shared>,
    /// State of the threads that are not writing now.
    idle: Mutex<Vec<Local>>,
    isa: Isa,
}

/// State that all threads share.
#[derive(Debug, Default)]
struct Shared {
    slots: HashMap<Box<[u8]>, usize>,
    /// Columns to write as strings, by slot.
    as_text: HashSet<usize>,
    /// Columns to write with all members, by slot.
    whole: HashSet<usize>,
    /// Counts the passes, so that no thread goes on with the columns of the one before.
    pass: u64,
}

/// Number of a column, which is its key in the lines; `None` if the field is not kept.
type Slot = Option<usize>;

/// Slot of the items that are not objects.
const NON_OBJECT_SLOT: usize = 0;

/// The columns as one thread knows them.
#[derive(Debug, Default)]
struct Local {
    fields: Vec<Field>,
    indexes: HashMap<Box<[u8]>, usize>,
    /// The column of items that are not objects.
    non_object: Field,
    counters: Counters,
    pass: u64,
}

#[derive(Debug, Default, Clone)]
struct Field {
    name: Box<[u8]>,
    slot: Slot,
    /// The key as it is usually written in the items.
    usual_key: Box<[u8]>,
    /// The key in the lines, with its quotes and colon.
    key: Vec<u8>,
    as_text: bool,
    needs_text: bool,
    /// Members of its objects to write; `None` for all.
    selection: Option<Arc<Selection>>,
    shape: Shape,
    /// Where the field was seen first: number of the item, and position in it.
    first: Option<(u64, usize)>,
    /// Number of the last object that had it.
    last_object: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feed {
    /// Creates a feed of the fields with these paths, in any case; `None` for all fields. A path has at least a name.
    #[must_use]
    pub fn new(paths: Option<&[Vec<String>]>) -> Self {
        let paths = paths.map(|paths| {
            let mut by_name: HashMap<String, Vec<Vec<String>>> = HashMap::new();
            for (name, members) in paths.iter().filter_map(|path| path.split_first()) {
                by_name.entry(name.to_lowercase()).or_default().push(members.to_vec());
            }
            by_name
        });
        let (shared, idle) = Default::default();
        let mut feed = Self { paths, keeps_non_objects: true, shared, idle, isa: Isa::detect() };
        feed.keeps_non_objects = feed.paths_of(NON_OBJECT_NAME).is_none_or(|paths| !paths.is_empty());
        feed
    }

    /// Returns the lines of a chunk's items. `first` is the number of the first item.
    ///
    /// # Errors
    /// `InvalidJson` if an item is not JSON; `InvalidArgument` for an index without items, or too many columns.
    pub fn write(&self, chunk: &[u8], index: &ItemIndex, first: u64) -> Result<Vec<u8>> {
        let splitter = ItemSplitter::new(index)?;
        let mut local = lock(&self.idle).pop().unwrap_or_default();
        local.start_pass(&lock(&self.shared));
        let mut writer = ItemWriter {
            feed: self,
            local: &mut local,
            number: first,
            is_row: splitter.has_rows(),
            out: Vec::with_capacity(chunk.len() / 4),
        };
        let result = if index.kind() == Some(index::Kind::Array) {
            writer.write_array(chunk)
        } else {
            let mut buffer = Vec::new();
            let mut items = splitter.spans(chunk);
            items.try_for_each(|span| {
                let item = splitter.json(&chunk[span], &mut buffer);
                writer.write(item, &mut Reader::new(item, self.isa))
            })
        };
        let out = writer.out;
        lock(&self.idle).push(local);
        result.map(|()| out)
    }

    /// Returns the columns in the order in which they first occur. Returns `None` if all chunks must be written again,
    /// because a column needs its values as strings or its objects with all members.
    #[must_use]
    pub fn finish(&self, index: &ItemIndex) -> Option<Vec<Column>> {
        let has_rows = index.delimiter().is_some();
        let mut fields: HashMap<usize, Field> = HashMap::new();
        let mut taken = HashSet::new();
        for local in lock(&self.idle).iter() {
            for field in std::iter::once(&local.non_object).chain(&local.fields) {
                taken.insert(String::from_utf8_lossy(&field.name).to_lowercase());
                let Some((slot, first)) = field.slot.zip(field.first) else { continue };
                let merged =
                    fields.entry(slot).or_insert_with(|| Field { shape: Shape::default(), ..field.clone() });
                merged.first = merged.first.map(|other| other.min(first));
                merged.needs_text |= field.needs_text;
                merged.shape.merge(field.shape.clone());
            }
        }
        let mut shared = lock(&self.shared);
        let mut is_complete = true;
        for (&slot, field) in &mut fields {
            field.start_pass(&shared);
            if (field.needs_text || field.shape.has_decimals()) && !has_rows && !field.as_text {
                is_complete = false;
                shared.as_text.insert(slot);
                shared.whole.insert(slot);
            } else if field.misses_members() {
                is_complete = false;
                shared.whole.insert(slot);
            }
        }
        if !is_complete {
            shared.pass += 1;
            return None;
        }
        let mut fields: Vec<Field> = fields.into_values().collect();
        fields.sort_by_key(|field| field.first);
        let names = name_columns(&fields, &taken);
        Some(fields.iter().zip(names).map(|(field, name)| field.column(name, has_rows)).collect())
    }

    /// Returns the names of the fields that were not kept, in lower case; `None` if there were too many to remember.
    #[must_use]
    pub fn skipped(&self) -> Option<Vec<String>> {
        let mut names = HashSet::new();
        for local in lock(&self.idle).iter() {
            let skipped = local.fields.iter().filter(|field| field.slot.is_none());
            names.extend(
                skipped.map(|field| column_name(&String::from_utf8_lossy(&field.name)).to_lowercase()),
            );
            if local.fields.len() >= MAX_KNOWN_KEYS {
                return None;
            }
        }
        if !self.keeps_non_objects {
            names.insert(NON_OBJECT_NAME.to_owned());
        }
        Some(names.into_iter().collect())
    }

    /// Returns a field as it is before its first value. Its slot is the same in all threads.
    fn new_field(&self, name: &[u8]) -> Result<Field> {
        let paths = self.paths_of(&String::from_utf8_lossy(name));
        if paths.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Field::new(name, None));
        }
        let selection = paths.and_then(|paths| Selection::new(&paths)).map(Arc::new);
        let mut shared = lock(&self.shared);
        let slot = self.slot_or_insert(&mut shared, name)?;
        let mut field = Field { selection, ..Field::new(name, Some(slot)) };
        field.start_pass(&shared);
        Ok(field)
    }

    fn slot_or_insert(&self, shared: &mut Shared, name: &[u8]) -> Result<usize> {
        if let Some(&slot) = shared.slots.get(name) {
            return Ok(slot);
        }
        let slot = shared.slots.len() + 1;
        if slot > MAX_COLUMNS {
            return Err(Error::argument(format!(
                "the items have more than {MAX_COLUMNS} different keys; name the fields that you need in the SELECT"
            )));
        }
        shared.slots.insert(name.into(), slot);
        Ok(slot)
    }

    /// Returns the member paths of the field with this key: an empty list if the field is not kept, `None` if all
    /// fields are kept whole.
    ///
    /// `name_2` may be the numbered column of the key `name`, so its paths count, too.
    fn paths_of(&self, key: &str) -> Option<Vec<&[String]>> {
        let name = column_name(key).to_lowercase();
        let is_meant = |other: &str| {
            let Some(rest) = other.strip_prefix(&name) else { return false };
            let number = rest.strip_prefix('_').filter(|number| !number.is_empty());
            rest.is_empty() || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let paths = self.paths.as_ref()?.iter().filter(|(other, _)| is_meant(other));
        Some(paths.flat_map(|(_, paths)| paths.iter().map(Vec::as_slice)).collect())
    }
}

impl Local {
    /// Prepares the columns of this thread: creates the column of items that are not objects, and updates how values
    /// are written if a new pass has begun.
    fn start_pass(&mut self, shared: &Shared) {
        if self.non_object.key.is_empty() {
            self.non_object = Field::new(NON_OBJECT_NAME.as_bytes(), Some(NON_OBJECT_SLOT));
        }
        if self.pass != shared.pass {
            self.pass = shared.pass;
            for field in std::iter::once(&mut self.non_object).chain(&mut self.fields) {
                field.start_pass(shared);
            }
        }
    }

    /// Returns the index of a field, which is added if it is new; `None` if it is not kept and too many keys are known
    /// already.
    fn find_or_add(&mut self, feed: &Feed, name: &[u8]) -> Result<Option<usize>> {
        if let Some(&at) = self.indexes.get(name) {
            return Ok(Some(at));
        }
        let field = feed.new_field(name)?;
        if field.slot.is_none() && self.fields.len() >= MAX_KNOWN_KEYS {
            return Ok(None);
        }
        let at = self.fields.len();
        self.fields.push(field);
        self.indexes.insert(name.into(), at);
        Ok(Some(at))
    }
}

impl Field {
    fn new(name: &[u8], slot: Slot) -> Self {
        let key = slot.map(|slot| format!("\"{slot}\":").into_bytes()).unwrap_or_default();
        Self { name: name.into(), slot, usual_key: usual_key(name), key, ..Self::default() }
    }

    /// Updates how its values are written.
    fn start_pass(&mut self, shared: &Shared) {
        self.as_text = self.slot.is_some_and(|slot| shared.as_text.contains(&slot));
        if self.slot.is_some_and(|slot| shared.whole.contains(&slot)) {
            self.selection = None;
        }
    }

    /// Whether objects were written without members that the column needs.
    fn misses_members(&self) -> bool {
        let is_missing = |selection: &Arc<Selection>| self.shape.selected_type(selection).is_none();
        self.shape.has_objects() && self.selection.as_ref().is_some_and(is_missing)
    }

    /// Remembers where the field was seen first. A thread does not always get chunks in order.
    #[inline]
    fn note_position(&mut self, position: (u64, usize)) {
        if self.first.is_none_or(|first| position < first) {
            self.first = Some(position);
        }
    }

    fn column(&self, name: String, has_rows: bool) -> Column {
        let key = self.slot.unwrap_or_default().to_string();
        let (sql_type, read_type) = if has_rows {
            (self.shape.cell_type(), "VARCHAR".to_owned())
        } else if !self.as_text {
            let selected = self.selection.as_ref().and_then(|selection| self.shape.selected_type(selection));
            let sql_type = selected.unwrap_or_else(|| self.shape.sql_type());
            (sql_type.clone(), sql_type)
        } else if self.shape.is_number() {
            // A number that is too long for any type is JSON.
            let sql_type = self.shape.sql_type();
            let read_type = if sql_type == "JSON" { "VARCHAR".to_owned() } else { sql_type.clone() };
            (sql_type, read_type)
        } else {
            ("JSON".to_owned(), "VARCHAR".to_owned())
        };
        Column { name, sql_type, key, read_type }
    }
}

/// Returns the name of the column of a key.
fn column_name(key: &str) -> String {
    if is_identifier(key) {
        key.to_owned()
    } else if key.is_empty() {
        EMPTY_NAME.to_owned()
    } else {
        key.replace('\0', "\u{fffd}")
    }
}

/// Names the columns. Names that are equal but for their case get numbers: `name`, `Name_2`.
fn name_columns(fields: &[Field], taken: &HashSet<String>) -> Vec<String> {
    let mut used: HashSet<String> = HashSet::new();
    let mut name_column = |field: &Field| {
        let name = column_name(&String::from_utf8_lossy(&field.name));
        if used.insert(name.to_lowercase()) {
            return name;
        }
        for number in 2_u64.. {
            let numbered = format!("{name}_{number}");
            let lower = numbered.to_lowercase();
            if !taken.contains(&lower) && used.insert(lower) {
                return numbered;
            }
        }
        name
    };
    fields.iter().map(&mut name_column).collect()
}

/// Writer of the lines of a chunk's items.
struct ItemWriter<'a> {
    feed: &'a Feed,
    local: &'a mut Local,
    /// Number of the next item.
    number: u64,
    is_row: bool,
    out: Vec<u8>,
}

impl ItemWriter<'_> {
    /// Writes items that are separated by commas, up to a closing bracket or the end.
    fn write_array(&mut self, chunk: &[u8]) -> Result<()> {
        let mut reader = Reader::new(chunk, self.feed.isa);
        while !matches!(reader.peek_or_end(), None | Some(b']')) {
            self.write(chunk, &mut reader)?;
            match reader.peek_or_end() {
                Some(b',') => reader.open(),
                None | Some(b']') => break,
                Some(_) => return Err(reader.fail("expected a comma or a closing bracket")),
            }
        }
        Ok(())
    }

    /// Writes the line of the next item.
    fn write(&mut self, data: &[u8], reader: &mut Reader<'_>) -> Result<()> {
        let line_start = self.out.len();
        self.out.push(b'{');
        if reader.kind()? == Kind::Object {
            let start = reader.pos();
            reader.open();
            if !self.write_members(data, reader)? {
                self.out.truncate(line_start + 1);
                self.write_last_members(data, &mut Reader::at(data, start, self.feed.isa))?;
            }
        } else if self.feed.keeps_non_objects {
            let Local { non_object, counters, .. } = &mut *self.local;
            non_object.note_position((self.number, 0));
            let mut walk = Walk { data, reader: reader.clone(), counters, traits: Traits::default() };
            let span = walk.value(Some(&mut non_object.shape), 1)?;
            reader.jump(span.end);
            push_field(&mut self.out, self.feed.isa, non_object, walk.traits, &data[span], false)?;
        } else {
            reader.skip()?;
        }
        self.number += 1;
        self.out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// Writes the members of an object that was opened. Returns `false` if a key is repeated.
    fn write_members(&mut self, data: &[u8], reader: &mut Reader<'_>) -> Result<bool> {
        self.local.counters.objects += 1;
        let object = self.local.counters.objects;
        let (mut is_first, mut expected, mut position, mut is_repeated) = (true, 0, 0, false);
        while next_member(reader, is_first)? {
            is_first = false;
            // Most items have the same keys in the same order.
            let is_known = match self.local.fields.get(expected) {
                Some(field) => reader.take_all(&field.usual_key),
                None => false,
            };
            if !is_known {
                let key = take_key(reader)?;
                let Some(at) = self.local.find_or_add(self.feed, &key_bytes(&data[key]))? else {
                    reader.skip()?;
                    continue;
                };
                expected = at;
            }
            let Local { fields, counters, .. } = &mut *self.local;
            let Some(field) = fields.get_mut(expected) else { continue };
            expected += 1;
            if field.slot.is_none() {
                reader.skip()?;
                continue;
            }
            is_repeated |= field.last_object == object;
            field.last_object = object;
            field.note_position((self.number, position));
            position += 1;
            let mut walk = Walk { data, reader: reader.clone(), counters, traits: Traits::default() };
            let span = if self.is_row {
                walk.cell(&mut field.shape)?
            } else {
                walk.value(Some(&mut field.shape), 1)?
            };
            reader.jump(span.end);
            push_field(&mut self.out, self.feed.isa, field, walk.traits, &data[span], self.is_row)?;
        }
        Ok(!is_repeated)
    }

    /// Writes an object in which a key is repeated, with the last value of each key. `write_members` has noted the
    /// shapes already.
    fn write_last_members(&mut self, data: &[u8], reader: &mut Reader<'_>) -> Result<()> {
        reader.open();
        for (key, value) in last_members(reader, data)? {
            let name = key_bytes(&data[key.start + 1..key.end - 1]);
            let Some(at) = self.local.find_or_add(self.feed, &name)? else { continue };
            let Local { fields, counters, .. } = &mut *self.local;
            let Some(field) = fields.get_mut(at).filter(|field| field.slot.is_some()) else { continue };
            let reader = Reader::at(data, value.start, self.feed.isa);
            let mut walk = Walk { data, reader, counters, traits: Traits::default() };
            walk.value(None, 1)?;
            push_field(&mut self.out, self.feed.isa, field, walk.traits, &data[value], self.is_row)?;
        }
        Ok(())
    }
}

/// Appends a value to a line.
fn push_field(
    out: &mut Vec<u8>,
    isa: Isa,
    field: &mut Field,
    traits: Traits,
    value: &[u8],
    is_cell: bool,
) -> Result<()> {
    field.needs_text |= traits.needs_text;
    if traits.is_null {
        return Ok(());
    }
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.extend_from_slice(&field.key);
    traits.push_value(isa, value, field.selection.as_deref(), field.as_text && !is_cell, out)
}

#[cfg(test)]
mod tests;
