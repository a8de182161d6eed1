//! Makes `\w`, `\d`, `\s` and `\b` ASCII-only, in a pattern that is otherwise Unicode.
//!
//! Without Unicode, `.` and `[^a]` would match half a character. With it, the engine would switch from its
//! DFA to something ten times slower at the first byte beyond ASCII near a `\b`.

use regex_syntax::ast::{
    Assertion, AssertionKind, Ast, ClassAscii, ClassAsciiKind, ClassBracketed, ClassPerl, ClassPerlKind,
    ClassSet, ClassSetItem, Flag, Flags, FlagsItem, FlagsItemKind, Group, GroupKind,
};

/// Recurses as deep as the parser's nest limit allows.
pub(super) fn restrict(ast: &mut Ast) {
    match ast {
        Ast::ClassPerl(class) => *ast = Ast::class_bracketed(bracketed(class)),
        Ast::Assertion(assertion) if is_word_boundary(&assertion.kind) => *ast = without_unicode(assertion),
        Ast::ClassBracketed(class) => restrict_set(&mut class.kind),
        Ast::Repetition(repetition) => restrict(&mut repetition.ast),
        Ast::Group(group) => restrict(&mut group.ast),
        Ast::Alternation(alternation) => alternation.asts.iter_mut().for_each(restrict),
        Ast::Concat(concat) => concat.asts.iter_mut().for_each(restrict),
        Ast::Empty(_)
        | Ast::Flags(_)
        | Ast::Literal(_)
        | Ast::Dot(_)
        | Ast::Assertion(_)
        | Ast::ClassUnicode(_) => {}
    }
}

fn restrict_set(set: &mut ClassSet) {
    match set {
        ClassSet::Item(item) => restrict_item(item),
        ClassSet::BinaryOp(operation) => {
            restrict_set(&mut operation.lhs);
            restrict_set(&mut operation.rhs);
        }
    }
}

fn restrict_item(item: &mut ClassSetItem) {
    match item {
        ClassSetItem::Perl(class) => *item = ClassSetItem::Bracketed(Box::new(bracketed(class))),
        ClassSetItem::Bracketed(class) => restrict_set(&mut class.kind),
        ClassSetItem::Union(union) => union.items.iter_mut().for_each(restrict_item),
        ClassSetItem::Empty(_)
        | ClassSetItem::Literal(_)
        | ClassSetItem::Range(_)
        | ClassSetItem::Ascii(_)
        | ClassSetItem::Unicode(_) => {}
    }
}

/// `\W` becomes `[^[:word:]]` and not `[[:^word:]]`: case folding comes before the outer negation but after the
/// inner one, where it would add `s` for U+017F and `k` for U+212A.
fn bracketed(class: &ClassPerl) -> ClassBracketed {
    let kind = match class.kind {
        ClassPerlKind::Digit => ClassAsciiKind::Digit,
        ClassPerlKind::Space => ClassAsciiKind::Space,
        ClassPerlKind::Word => ClassAsciiKind::Word,
    };
    let ascii = ClassAscii { span: class.span, kind, negated: false };
    ClassBracketed {
        span: class.span,
        negated: class.negated,
        kind: ClassSet::Item(ClassSetItem::Ascii(ascii)),
    }
}

fn is_word_boundary(kind: &AssertionKind) -> bool {
    match kind {
        AssertionKind::StartLine
        | AssertionKind::EndLine
        | AssertionKind::StartText
        | AssertionKind::EndText => false,
        AssertionKind::WordBoundary
        | AssertionKind::NotWordBoundary
        | AssertionKind::WordBoundaryStart
        | AssertionKind::WordBoundaryEnd
        | AssertionKind::WordBoundaryStartAngle
        | AssertionKind::WordBoundaryEndAngle
        | AssertionKind::WordBoundaryStartHalf
        | AssertionKind::WordBoundaryEndHalf => true,
    }
}

/// `(?-u:…)`
fn without_unicode(assertion: &Assertion) -> Ast {
    let span = assertion.span;
    let item = |kind| FlagsItem { span, kind };
    let items = vec![item(FlagsItemKind::Negation), item(FlagsItemKind::Flag(Flag::Unicode))];
    Ast::group(Group {
        span,
        kind: GroupKind::NonCapturing(Flags { span, items }),
        ast: Box::new(Ast::assertion(assertion.clone())),
    })
}
