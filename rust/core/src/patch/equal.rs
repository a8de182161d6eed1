//! Equality of two JSON values as `test` needs it: by what they mean, not by how they are spelled.

use std::borrow::Cow;

use crate::error::Result;
use crate::message;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// Maximum nesting of values to compare. Each level of objects is read once more.
pub(super) const MAX_DEPTH: usize = 128;

/// Whether two valid JSON values are equal; `None` if they are nested too deeply.
///
/// Strings are compared by their characters, numbers by their exact value, objects without regard to order.
/// Of equal keys the first one counts.
pub(super) fn equal(isa: Isa, left: &[u8], right: &[u8]) -> Result<Option<bool>> {
    if left == right {
        return Ok(Some(true));
    }
    let mut sides = Sides { left, right, isa };
    sides.compare(&mut Reader::new(left, isa), &mut Reader::new(right, isa), 0)
}

struct Sides<'a> {
    left: &'a [u8],
    right: &'a [u8],
    isa: Isa,
}

impl Sides<'_> {
    fn compare(
        &mut self,
        left: &mut Reader<'_>,
        right: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Option<bool>> {
        let kind = left.kind()?;
        if kind != right.kind()? {
            return Ok(Some(false));
        }
        match kind {
            Kind::Array | Kind::Object if depth == MAX_DEPTH => Ok(None),
            Kind::Array => self.compare_arrays(left, right, depth + 1),
            Kind::Object => self.compare_objects(left, right, depth + 1),
            Kind::String => {
                let (left, right) = (left.take_string()?, right.take_string()?);
                Ok(Some(text(&self.left[left]) == text(&self.right[right])))
            }
            _ => {
                let (left, right) = (left.take_scalar()?, right.take_scalar()?);
                Ok(Some(same_scalar(&self.left[left], &self.right[right])))
            }
        }
    }

    fn compare_arrays(
        &mut self,
        left: &mut Reader<'_>,
        right: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Option<bool>> {
        left.open();
        right.open();
        let mut is_first = true;
        loop {
            let has_left = left.next_item(is_first)?;
            if has_left != right.next_item(is_first)? {
                return Ok(Some(false));
            }
            if !has_left {
                return Ok(Some(true));
            }
            is_first = false;
            let result = self.compare(left, right, depth)?;
            if result != Some(true) {
                return Ok(result);
            }
        }
    }

    fn compare_objects(
        &mut self,
        left: &mut Reader<'_>,
        right: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Option<bool>> {
        let (left, right) = (sorted_members(left, self.left)?, sorted_members(right, self.right)?);
        let has_same_keys = left.iter().map(|(key, _)| key).eq(right.iter().map(|(key, _)| key));
        if !has_same_keys {
            return Ok(Some(false));
        }
        for ((_, left), (_, right)) in left.iter().zip(&right) {
            let (left, right) =
                (Reader::at(self.left, *left, self.isa), Reader::at(self.right, *right, self.isa));
            let result = self.compare(&mut { left }, &mut { right }, depth)?;
            if result != Some(true) {
                return Ok(result);
            }
        }
        Ok(Some(true))
    }
}

/// Takes an object. Returns its keys in order, each with the position of its value.
fn sorted_members<'a>(reader: &mut Reader<'_>, data: &'a [u8]) -> Result<Vec<(Cow<'a, [u8]>, usize)>> {
    reader.open();
    let mut members = Vec::new();
    while let Some(key) = reader.next_key(members.is_empty())? {
        members.push((text(&data[key]), reader.skip()?.start));
    }
    members.sort_by(|left, right| left.0.cmp(&right.0));
    members.dedup_by(|next, first| next.0 == first.0);
    Ok(members)
}

/// Returns the characters of a raw string. Lone surrogates are kept, so that they differ from each other.
fn text(raw: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr(b'\\', raw) {
        None => Cow::Borrowed(raw),
        Some(_) => Cow::Owned(message::unescape(raw)),
    }
}

fn same_scalar(left: &[u8], right: &[u8]) -> bool {
    match (Decimal::parse(left), Decimal::parse(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// A number as digits without zeros at either end, times a power of ten. Zero has no digits and no sign.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// Parses a number; `None` for other scalars, and if the exponent does not fit 64 bits.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (text, is_negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
        if !text.starts_with(|char: char| char.is_ascii_digit()) {
            return None;
        }
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = [whole, fraction].concat().into_bytes();
        let mut exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        while digits.pop_if(|digit| *digit == b'0').is_some() {
            exponent = exponent.checked_add(1)?;
        }
        let leading_zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..leading_zeros);
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        Some(Self { is_negative, digits, exponent })
    }
}
