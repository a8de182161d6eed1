//! Merges the values of a payload into a shape. Depth, memory and the number of values read are bounded for
//! any payload; beyond the bounds, values are only counted.

use super::SAMPLE_ITEMS;
use super::shape::{BOOL, FLOAT, INT, MAX_KEYS, NULL, Object, STR, Shape};
use crate::error::Result;
use crate::ndjson::{expect_end, is_first_line, lines};
use crate::pointer::unescape;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// Containers deeper than this are counted, not entered.
const MAX_DEPTH: usize = 32;

/// Distinct fields that are recorded for a whole payload.
pub(super) const MAX_FIELDS: usize = 10_000;

/// Values that are read of a whole payload.
const MAX_VALUES: usize = 200_000;

/// Values that are read of one array before its other items are only counted, so that what comes later has
/// its share.
const MAX_ARRAY_VALUES: usize = 20_000;

pub(super) struct Document<'a> {
    pub(super) shape: Shape<'a>,
    pub(super) is_ndjson: bool,
}

/// An array or object, or the lines of NDJSON, whose number of items is known.
#[derive(Clone, Copy)]
pub(super) struct KnownItems {
    /// Offset of the opening bracket; `None` for NDJSON.
    pub(super) start: Option<usize>,
    pub(super) count: u64,
    /// Offset after the last item's bracket or line; `None` if the data has only the first items.
    pub(super) end: Option<usize>,
}

/// Reads a document.
pub(super) fn read(isa: Isa, data: &[u8], known: Option<KnownItems>) -> Result<Document<'_>> {
    let mut reader = Reader::new(data, isa);
    let mut shape = Shape::default();
    Merger::new(data, known).merge_value(&mut reader, &mut shape, 0)?;
    let is_ndjson = is_first_line(&mut reader, data, isa)?;
    if is_ndjson {
        shape = Shape::default();
        Merger::new(data, known).merge_lines(isa, &mut shape)?;
    }
    Ok(Document { shape, is_ndjson })
}

struct Merger<'a> {
    data: &'a [u8],
    /// How many values were read.
    values: usize,
    /// How many fields there are in the whole tree.
    fields: usize,
    known: Option<KnownItems>,
}

impl<'a> Merger<'a> {
    fn new(data: &'a [u8], known: Option<KnownItems>) -> Self {
        Self { data, values: 0, fields: 0, known }
    }

    /// Returns what is known of the items of the container at the reader's position.
    fn known_at(&self, reader: &Reader<'_>) -> Option<KnownItems> {
        self.known.filter(|known| known.start == Some(reader.pos()))
    }

    fn merge_lines(&mut self, isa: Isa, shape: &mut Shape<'a>) -> Result<()> {
        let array = shape.array.get_or_insert_default();
        let mut lines = lines(self.data);
        let mut len = 0;
        while len < SAMPLE_ITEMS
            && self.values < MAX_ARRAY_VALUES
            && let Some(line) = lines.next()
        {
            let mut reader = Reader::at(&self.data[..line.end], line.start, isa);
            self.merge_value(&mut reader, &mut array.item, 1)?;
            expect_end(&mut reader)?;
            len += 1;
        }
        let known = self.known.filter(|known| known.start.is_none());
        array.len.add(known.map_or_else(|| len + lines.count() as u64, |known| known.count));
        Ok(())
    }

    fn merge_value(&mut self, reader: &mut Reader<'_>, shape: &mut Shape<'a>, depth: usize) -> Result<()> {
        self.values += 1;
        let may_enter = depth < MAX_DEPTH && self.values < MAX_VALUES;
        match reader.kind()? {
            Kind::Object => {
                let known = self.known_at(reader);
                reader.open();
                let object = shape.object.get_or_insert_default();
                object.count += 1;
                let keys = if may_enter {
                    self.merge_object(reader, object, depth, known)?
                } else {
                    count_children(reader, b'}')?
                };
                object.is_cut |= !may_enter && keys > 0;
                object.keys.add(known.map_or(keys, |known| known.count));
            }
            Kind::Array => {
                let known = self.known_at(reader);
                reader.open();
                let array = shape.array.get_or_insert_default();
                let len = if may_enter {
                    self.merge_array(reader, &mut array.item, depth, known)?
                } else {
                    count_children(reader, b']')?
                };
                array.len.add(known.map_or(len, |known| known.count));
            }
            // An outline shows no string contents, so they are not read.
            Kind::String => {
                reader.skip()?;
                shape.scalars |= STR;
            }
            Kind::Number => {
                let number = &self.data[reader.take_scalar()?];
                let is_float = number.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
                shape.scalars |= if is_float { FLOAT } else { INT };
            }
            Kind::Bool => {
                reader.take_scalar()?;
                shape.scalars |= BOOL;
            }
            Kind::Null => {
                reader.take_scalar()?;
                shape.scalars |= NULL;
            }
        }
        Ok(())
    }

    fn merge_array(
        &mut self,
        reader: &mut Reader<'_>,
        item: &mut Shape<'a>,
        depth: usize,
        known: Option<KnownItems>,
    ) -> Result<u64> {
        let before = self.values;
        let mut len = 0;
        while reader.next_item(len == 0)? {
            self.merge_value(reader, item, depth + 1)?;
            len += 1;
            if len == SAMPLE_ITEMS || self.values - before >= MAX_ARRAY_VALUES {
                return skip_rest(reader, len, known);
            }
        }
        Ok(len)
    }

    fn merge_object(
        &mut self,
        reader: &mut Reader<'_>,
        object: &mut Object<'a>,
        depth: usize,
        known: Option<KnownItems>,
    ) -> Result<u64> {
        let (mut keys, mut guess) = (0, 0);
        while let Some(key) = reader.next_key(keys == 0)? {
            keys += 1;
            let raw = &self.data[key];
            // A key that is not text is shown in its raw form.
            let key = unescape(raw).unwrap_or_else(|| String::from_utf8_lossy(raw));
            let before = object.fields.len();
            if let Some(at) = object.position(key, guess, self.fields < MAX_FIELDS) {
                self.fields += object.fields.len() - before;
                guess = at + 1;
                let field = &mut object.fields[at];
                field.count += 1;
                self.merge_value(reader, &mut field.shape, depth + 1)?;
            } else {
                reader.skip()?;
            }
            if keys == MAX_KEYS as u64 {
                let all_keys = skip_rest(reader, keys, known)?;
                object.is_cut |= all_keys > keys;
                return Ok(all_keys);
            }
        }
        Ok(keys)
    }
}

/// Skips the rest of a container, of which `read` children were read, and returns the number of all children.
fn skip_rest(reader: &mut Reader<'_>, read: u64, known: Option<KnownItems>) -> Result<u64> {
    if let Some(KnownItems { count, end: Some(end), .. }) = known
        && end >= reader.pos()
    {
        reader.jump(end);
        return Ok(count);
    }
    Ok(read + reader.skip_rest()?)
}

/// Skips a container from right after its opening bracket, and counts its direct children.
fn count_children(reader: &mut Reader<'_>, closing: u8) -> Result<u64> {
    if reader.take(closing)? { Ok(0) } else { Ok(1 + reader.skip_rest()?) }
}
