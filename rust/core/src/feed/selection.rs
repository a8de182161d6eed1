//! Which members of an object are kept: those on the paths that a statement names.

use super::clean::key_bytes;
use super::walk::{next_member, take_key};
use crate::error::Result;
use crate::reader::{Kind, Reader};
use crate::scan::Isa;

/// Members to keep, with what to keep of each. Without members, all of the value is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    members: Vec<(Box<str>, Selection)>,
}

impl Selection {
    /// Creates the selection of all paths; `None` if one of them is empty, which is the whole value.
    pub(super) fn new(paths: &[&[String]]) -> Option<Self> {
        let mut members: Vec<(Box<str>, Vec<&[String]>)> = Vec::new();
        for path in paths {
            let (name, rest) = path.split_first()?;
            match members.iter_mut().find(|(other, _)| other.eq_ignore_ascii_case(name)) {
                Some((_, paths)) => paths.push(rest),
                None => members.push((name.as_str().into(), vec![rest])),
            }
        }
        let members =
            members.into_iter().map(|(name, paths)| (name, Self::new(&paths).unwrap_or_default())).collect();
        Some(Self { members })
    }

    /// Whether all of the value is kept.
    pub(super) fn is_whole(&self) -> bool {
        self.members.is_empty()
    }

    /// Number of members that are kept.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns what to keep of a member, by its key without escapes. The case of ASCII letters does not matter.
    pub(super) fn member(&self, name: &[u8]) -> Option<&Self> {
        let is_equal = |other: &str| other.as_bytes().eq_ignore_ascii_case(name);
        self.members.iter().find(|(other, _)| is_equal(other)).map(|(_, selection)| selection)
    }

    /// Appends a value without the members of its objects that are not kept. Other values are appended whole.
    ///
    /// No object may have a key twice.
    pub(super) fn push_value(&self, isa: Isa, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut reader = Reader::new(value, isa);
        if self.is_whole() || reader.kind()? != Kind::Object {
            out.extend_from_slice(value);
            return Ok(());
        }
        reader.open();
        out.push(b'{');
        let (mut is_first, mut count) = (true, 0);
        // What follows the last of the members is not read.
        while count < self.members.len() && next_member(&mut reader, is_first)? {
            is_first = false;
            let key = take_key(&mut reader)?;
            let member = reader.skip()?;
            let Some(selection) = self.member(&key_bytes(&value[key.clone()])) else { continue };
            if count > 0 {
                out.push(b',');
            }
            count += 1;
            out.extend_from_slice(&value[key.start - 1..=key.end]);
            out.push(b':');
            selection.push_value(isa, &value[member], out)?;
        }
        out.push(b'}');
        Ok(())
    }
}
