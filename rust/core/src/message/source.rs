//! Where a message is, and how its parts are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Take};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// How much of a file is read at once. What is no longer is read through one open file, in one go.
const PIECE: usize = 64 * 1024;

/// All of a message.
#[derive(Debug)]
pub enum Source<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// In a file that nobody writes to any more.
    File(PathBuf, File),
}

/// A value of a message, by its bytes.
#[derive(Debug)]
pub struct Value<'a> {
    /// The message.
    pub source: &'a Source<'a>,
    /// The value's bytes, quotes or brackets included.
    pub span: Range<u64>,
}

impl Source<'_> {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::unreadable(&error))?;
        Ok(Self::File(path.to_owned(), file))
    }

    /// Reads a span; what lies beyond the end is not there.
    pub fn reader(&self, span: Range<u64>) -> Result<Reader<'_>> {
        match self {
            Self::Memory(data) => {
                let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(data.len());
                Ok(Reader::Memory(&data[at(span.start)..at(span.end).max(at(span.start))]))
            }
            Self::File(path, file) => from_file(path, file, span).map_err(|error| Error::unreadable(&error)),
        }
    }
}

fn from_file(path: &Path, mut file: &File, span: Range<u64>) -> io::Result<Reader<'static>> {
    let len = span.end.saturating_sub(span.start);
    if len <= PIECE as u64 {
        let mut data = Vec::new();
        file.seek(SeekFrom::Start(span.start))?;
        file.take(len).read_to_end(&mut data)?;
        return Ok(Reader::Read(Cursor::new(data)));
    }
    // A file of its own: this one may still be read when the next value is.
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(span.start))?;
    Ok(Reader::File(BufReader::with_capacity(PIECE, file.take(len))))
}

/// What reads a span of a [`Source`].
#[derive(Debug)]
pub enum Reader<'a> {
    /// From memory.
    Memory(&'a [u8]),
    /// From a file, read already.
    Read(Cursor<Vec<u8>>),
    /// From a file, a piece at a time.
    File(BufReader<Take<File>>),
}

impl Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(data) => data.read(into),
            Self::Read(data) => data.read(into),
            Self::File(file) => file.read(into),
        }
    }
}

impl BufRead for Reader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Memory(data) => Ok(data),
            Self::Read(data) => data.fill_buf(),
            Self::File(file) => file.fill_buf(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Self::Memory(data) => data.consume(count),
            Self::Read(data) => data.consume(count),
            Self::File(file) => file.consume(count),
        }
    }
}
