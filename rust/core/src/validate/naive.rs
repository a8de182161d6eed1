//! Reference validator that reads byte by byte.

type Position = usize;

/// Fails at the first byte at which the payload can no longer become valid; at its length if it ends too
/// early.
pub(super) fn check(data: &[u8]) -> Result<(), Position> {
    let structure = documents(data);
    match std::str::from_utf8(data) {
        Ok(_) => structure,
        Err(error) => Err(structure.err().unwrap_or(usize::MAX).min(error.valid_up_to())),
    }
}

fn documents(data: &[u8]) -> Result<(), Position> {
    let mut pos = skip_white(data, 0);
    let start = pos;
    pos = value(data, pos, None)?;
    let is_multiline = data[start..pos].contains(&b'\n');
    loop {
        let next = skip_white(data, pos);
        if next == data.len() {
            return Ok(());
        }
        if is_multiline
            || !data[pos..next].contains(&b'\n')
            || matches!(data[next], b',' | b':' | b']' | b'}')
        {
            return Err(next);
        }
        let line = data[next..].iter().position(|&byte| byte == b'\n').map(|at| next + at);
        pos = value(data, next, line)?;
    }
}

fn skip_white(data: &[u8], mut pos: Position) -> Position {
    while pos < data.len() && matches!(data[pos], b' ' | b'\t' | b'\n' | b'\r') {
        pos += 1;
    }
    pos
}

/// Skips white space inside a value. In a row, which ends at `line`, a newline is an error.
fn skip_inner_white(data: &[u8], pos: Position, line: Option<Position>) -> Result<Position, Position> {
    let end = skip_white(data, pos);
    match line {
        Some(line) if end > line => Err(line),
        _ => Ok(end),
    }
}

fn value(data: &[u8], pos: Position, line: Option<Position>) -> Result<Position, Position> {
    match data.get(pos) {
        Some(b'"') => string(data, pos),
        Some(b'{' | b'[') => container(data, pos, line),
        Some(b't') => literal(data, pos, b"true"),
        Some(b'f') => literal(data, pos, b"false"),
        Some(b'n') => literal(data, pos, b"null"),
        Some(b'-' | b'0'..=b'9') => number(data, pos),
        _ => Err(pos),
    }
}

fn container(data: &[u8], mut pos: Position, line: Option<Position>) -> Result<Position, Position> {
    let is_object = data[pos] == b'{';
    let close = if is_object { b'}' } else { b']' };
    pos = skip_inner_white(data, pos + 1, line)?;
    if data.get(pos) == Some(&close) {
        return Ok(pos + 1);
    }
    loop {
        if is_object {
            if data.get(pos) != Some(&b'"') {
                return Err(pos);
            }
            pos = skip_inner_white(data, string(data, pos)?, line)?;
            if data.get(pos) != Some(&b':') {
                return Err(pos);
            }
            pos = skip_inner_white(data, pos + 1, line)?;
        }
        pos = skip_inner_white(data, value(data, pos, line)?, line)?;
        match data.get(pos) {
            Some(b',') => pos = skip_inner_white(data, pos + 1, line)?,
            Some(byte) if *byte == close => return Ok(pos + 1),
            _ => return Err(pos),
        }
    }
}

fn literal(data: &[u8], pos: Position, word: &[u8]) -> Result<Position, Position> {
    for (i, letter) in word.iter().enumerate() {
        if data.get(pos + i) != Some(letter) {
            return Err(pos + i);
        }
    }
    Ok(pos + word.len())
}

fn number(data: &[u8], mut pos: Position) -> Result<Position, Position> {
    let digit = |pos: Position| data.get(pos).is_some_and(u8::is_ascii_digit);
    if data[pos] == b'-' {
        pos += 1;
    }
    if !digit(pos) {
        return Err(pos);
    }
    let zero = data[pos] == b'0';
    pos += 1;
    if zero && digit(pos) {
        return Err(pos);
    }
    while digit(pos) {
        pos += 1;
    }
    if data.get(pos) == Some(&b'.') {
        pos += 1;
        if !digit(pos) {
            return Err(pos);
        }
        while digit(pos) {
            pos += 1;
        }
    }
    if matches!(data.get(pos), Some(b'e' | b'E')) {
        pos += 1;
        if matches!(data.get(pos), Some(b'+' | b'-')) {
            pos += 1;
        }
        if !digit(pos) {
            return Err(pos);
        }
        while digit(pos) {
            pos += 1;
        }
    }
    Ok(pos)
}

fn string(data: &[u8], mut pos: Position) -> Result<Position, Position> {
    pos += 1;
    loop {
        match data.get(pos) {
            Some(b'"') => return Ok(pos + 1),
            Some(b'\\') => {
                pos += 1;
                match data.get(pos) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => pos += 1,
                    Some(b'u') => {
                        for _ in 0..4 {
                            pos += 1;
                            if !data.get(pos).is_some_and(u8::is_ascii_hexdigit) {
                                return Err(pos);
                            }
                        }
                        pos += 1;
                    }
                    _ => return Err(pos),
                }
            }
            Some(0x20..) => pos += 1,
            _ => return Err(pos),
        }
    }
}
