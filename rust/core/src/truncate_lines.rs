//! Overview of a text: its first and last lines, with a note of what is left out between them.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::lines::{count_lines, last_lines_start, line_end};
use crate::utf8::{check_text, floor_boundary};

/// Smallest budget, and smallest share of a line that is cut, in bytes: room for the longest note and a
/// newline. With less, the note would replace the text.
const MIN_LINE_BYTES: usize = 64;

/// Returns the first `head` and last `tail` lines, with a note between them that counts the others, in at
/// most `max_bytes`. A text without other lines that fits the budget is returned unchanged.
///
/// Lines that do not fit share the budget equally: a line over its share is cut at a character boundary and
/// ends in a note with the number of missing bytes, and what shorter lines do not use goes to longer ones. If
/// the budget has less than 64 bytes per line, lines are left out from the middle.
pub fn truncate_lines(data: &[u8], head: u64, tail: u64, max_bytes: u64) -> Result<String> {
    let budget = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    if budget < MIN_LINE_BYTES {
        return Err(Error::argument(format!("max_bytes must be at least {MIN_LINE_BYTES}, not {max_bytes}")));
    }
    let total = count_lines(data);
    let mut out = Vec::new();
    if head.saturating_add(tail) >= total && data.len() <= budget {
        push_text(&mut out, data, 0..data.len())?;
        return into_text(out);
    }
    let budget = budget - omission_note(total, "line").len() - 1;
    let (first, last) = pick_outer_lines(data, head, tail, budget);
    let share = fair_share(first.iter().chain(&last).map(Range::len).collect(), budget);
    for line in &first {
        push_line(&mut out, data, line.clone(), share)?;
    }
    let missing = total.saturating_sub((first.len() + last.len()) as u64);
    if missing > 0 {
        out.extend(omission_note(missing, "line").bytes());
        if !last.is_empty() {
            out.push(b'\n');
        }
    }
    for line in last {
        push_line(&mut out, data, line, share)?;
    }
    into_text(out)
}

/// Picks as many of the requested lines as can have [`MIN_LINE_BYTES`] each, or their own length if that is
/// less, alternating between both ends.
fn pick_outer_lines(
    data: &[u8],
    head: u64,
    tail: u64,
    budget: usize,
) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut middle = 0..data.len();
    let mut left = budget;
    // The middle bounds both sides, so that they cannot cross even if the payload changes during the call.
    while !middle.is_empty() {
        let wants_head = (first.len() as u64) < head;
        let wants_tail = (last.len() as u64) < tail;
        if !wants_head && !wants_tail {
            break;
        }
        let is_head = wants_head && (first.len() <= last.len() || !wants_tail);
        let line = if is_head {
            middle.start..line_end(data, middle.start).min(middle.end)
        } else {
            last_lines_start(&data[..middle.end], 1).max(middle.start)..middle.end
        };
        let Some(rest) = left.checked_sub(line.len().min(MIN_LINE_BYTES)) else { break };
        left = rest;
        if is_head {
            middle.start = line.end;
            first.push(line);
        } else {
            middle.end = line.start;
            last.push(line);
        }
    }
    last.reverse();
    (first, last)
}

/// Returns the largest line size with which all lines together fit the budget.
fn fair_share(mut sizes: Vec<usize>, budget: usize) -> usize {
    sizes.sort_unstable();
    let mut left = budget;
    for (index, &size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index);
        if size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

/// Appends a line. A longer one is cut so that its text, note and newline take `share` bytes.
fn push_line(out: &mut Vec<u8>, data: &[u8], line: Range<usize>, share: usize) -> Result<()> {
    if line.len() <= share {
        return push_text(out, data, line);
    }
    let ending = usize::from(data[line.clone()].ends_with(b"\n"));
    let content = line.start..line.end - ending;
    let note = omission_note(content.len() as u64, "byte").len();
    let end = floor_boundary(data, content.start + share.saturating_sub(note + ending));
    push_text(out, data, content.start..end)?;
    out.extend(omission_note((content.end - end) as u64, "byte").bytes());
    out.extend(&data[content.end..line.end]);
    Ok(())
}

fn push_text(out: &mut Vec<u8>, data: &[u8], span: Range<usize>) -> Result<()> {
    check_text(data, span.clone())?;
    out.extend_from_slice(&data[span]);
    Ok(())
}

/// Validates the copy again: the payload may have changed after its parts were checked.
fn into_text(out: Vec<u8>) -> Result<String> {
    String::from_utf8(out).map_err(|error| Error::text(error.utf8_error().valid_up_to() as u64))
}

/// Formats a note such as `[... 1,234 lines left out ...]`. A smaller count never has a longer note.
fn omission_note(count: u64, unit: &str) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let plural = if count == 1 { "" } else { "s" };
    format!("[... {grouped} {unit}{plural} left out ...]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => crate::testing::text(),
            3 => "\n{1,2}",
            1 => (60..400_usize).prop_map(|size| "é".repeat(size)),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    /// Reference: takes lines while each can have its minimum, then tries every share.
    fn naive(text: &str, head: usize, tail: usize, max_bytes: usize) -> String {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        if head + tail >= lines.len() && text.len() <= max_bytes {
            return text.to_owned();
        }
        let budget = max_bytes - omission_note(lines.len() as u64, "line").len() - 1;
        let heads = (0..head.min(lines.len())).map(|index| (2 * index, index));
        let tails = (0..tail.min(lines.len())).map(|index| (2 * index + 1, lines.len() - 1 - index));
        let mut turns: Vec<_> = heads.chain(tails).collect();
        turns.sort_unstable();
        let mut taken = std::collections::HashSet::new();
        turns.retain(|&(_, line)| taken.insert(line));
        let size = |turns: &[(usize, usize)], share: usize| {
            turns.iter().map(|&(_, line)| lines[line].len().min(share)).sum::<usize>()
        };
        while size(&turns, MIN_LINE_BYTES) > budget {
            turns.pop();
        }
        let share = (MIN_LINE_BYTES..=text.len()).rev().find(|&share| size(&turns, share) <= budget);
        let (mut first, mut last) = (String::new(), String::new());
        for (index, line) in lines.iter().enumerate() {
            if let Some((turn, _)) = turns.iter().find(|turn| turn.1 == index) {
                let side = if turn % 2 == 0 { &mut first } else { &mut last };
                side.push_str(&naive_line(line, share.unwrap_or(MIN_LINE_BYTES)));
            }
        }
        let missing = lines.len() - turns.len();
        let note = if missing == 0 { String::new() } else { omission_note(missing as u64, "line") };
        let ending = if missing == 0 || last.is_empty() { "" } else { "\n" };
        format!("{first}{note}{ending}{last}")
    }

    fn naive_line(line: &str, share: usize) -> String {
        if line.len() <= share {
            return line.to_owned();
        }
        let content = line.trim_end_matches('\n');
        let ending = &line[content.len()..];
        let room = share - omission_note(content.len() as u64, "byte").len() - ending.len();
        let end = (0..=room).rev().find(|&end| content.is_char_boundary(end)).unwrap();
        format!("{}{}{ending}", &content[..end], omission_note((content.len() - end) as u64, "byte"))
    }

    proptest! {
        #[test]
        fn matches_trying_every_share(
            text in log(), head in 0..6_usize, tail in 0..6_usize, max_bytes in prop_oneof![64..300_usize, 300..2000_usize],
        ) {
            let got = truncate_lines(text.as_bytes(), head as u64, tail as u64, max_bytes as u64).unwrap();
            prop_assert!(got.len() <= max_bytes);
            prop_assert_eq!(got, naive(&text, head, tail, max_bytes));
        }

        #[test]
        fn arbitrary_bytes_are_text_or_fail(data in prop::collection::vec(any::<u8>(), 0..300), max_bytes in 64..200_u64) {
            if let Ok(text) = truncate_lines(&data, 2, 2, max_bytes) {
                prop_assert!(text.len() as u64 <= max_bytes);
            }
        }
    }

    #[test]
    fn counts_are_exact_and_grouped() {
        let text: String = (0..1_239).map(|line| format!("{line}\n")).collect();
        let got = truncate_lines(text.as_bytes(), 2, 3, 10_240).unwrap();
        assert_eq!(got, "0\n1\n[... 1,234 lines left out ...]\n1236\n1237\n1238\n");
        let got = truncate_lines(text.as_bytes(), 2, 0, 10_240).unwrap();
        assert_eq!(got, "0\n1\n[... 1,237 lines left out ...]");
        assert_eq!(truncate_lines(b"a\nb\nc", 1, 1, 64).unwrap(), "a\n[... 1 line left out ...]\nc");
        assert_eq!(truncate_lines(text.as_bytes(), u64::MAX, u64::MAX, u64::MAX).unwrap(), text);
    }

    #[test]
    fn a_giant_line_leaves_room_for_the_others() {
        let text = format!("first\n{}\nlast\n", "x".repeat(1_000_000));
        let got = truncate_lines(text.as_bytes(), 10, 10, 128).unwrap();
        let shown = got.bytes().filter(|&byte| byte == b'x').count();
        let note = omission_note(1_000_000 - shown as u64, "byte");
        assert_eq!(got, format!("first\n{}{note}\nlast\n", "x".repeat(shown)));
        assert!(shown > 20, "{got}");
    }

    #[test]
    fn every_note_fits_the_smallest_budget() {
        assert!(omission_note(u64::MAX, "line").len() < MIN_LINE_BYTES);
        assert_eq!(
            truncate_lines(&b"xyz\n".repeat(1000), 0, 0, 64).unwrap(),
            "[... 1,000 lines left out ...]"
        );
        let error = truncate_lines(b"", 1, 1, 63).unwrap_err();
        assert!(error.to_string().contains("at least 64"), "{error}");
    }

    #[test]
    fn only_the_shown_lines_must_be_utf8() {
        let text = b"a\n\xff\nb\n";
        assert!(truncate_lines(text, 1, 1, 64).is_ok());
        assert_eq!(truncate_lines(text, 2, 1, 64), Err(Error::text(2)));
    }
}
