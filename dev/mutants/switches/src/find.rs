//! Finds the code of each mutant in a file, and says how it is put behind a switch.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, UnOp};

use crate::edit::{Around, Lines};
use crate::places::{SITE_ENDS, arm, site_begins};
use crate::{Listed, Point, Span};

const AT: &str = "crate::mutant_switch::at";
const ON: &str = "crate::mutant_switch::on";

/// The mutants of one place.
type Mutants<'a> = Vec<(u32, &'a Listed)>;

pub struct Finder<'a> {
    text: &'a str,
    lines: &'a Lines<'a>,
    left_to_find: BTreeMap<Span, Mutants<'a>>,
    /// Those that must not be made.
    out: &'a BTreeSet<u32>,
    edits: Vec<Around>,
    /// How many constants, constant functions and the like we are in.
    constants: u32,
}

fn of(span: proc_macro2::Span) -> Span {
    let point = |at: proc_macro2::LineColumn| Point {
        line: at.line,
        column: at.column + 1,
    };
    Span {
        start: point(span.start()),
        end: point(span.end()),
    }
}

impl<'a> Finder<'a> {
    pub fn new(
        text: &'a str,
        lines: &'a Lines<'a>,
        at: BTreeMap<Span, Mutants<'a>>,
        out: &'a BTreeSet<u32>,
    ) -> Finder<'a> {
        Finder {
            text,
            lines,
            left_to_find: at,
            out,
            edits: Vec::new(),
            constants: 0,
        }
    }

    /// Returns the edits. Mutants that cannot be put behind a switch have none: those in constants,
    /// in functions that return an `impl`, and in conditions with `let`.
    pub fn done(self) -> Vec<Around> {
        self.edits
    }

    fn range(&self, span: Span) -> (usize, usize) {
        (self.lines.byte(span.start), self.lines.byte(span.end))
    }

    /// Takes the mutants of a genre at a place.
    fn take(&mut self, span: Span, genre: &str) -> Mutants<'a> {
        let Some(found) = self.left_to_find.get_mut(&span) else {
            return Vec::new();
        };
        let (taken, others): (Mutants<'a>, Mutants<'a>) =
            found.drain(..).partition(|one| one.1.genre == genre);
        *found = others;
        if self.constants > 0 {
            return Vec::new();
        }
        taken
            .into_iter()
            .filter(|one| !self.out.contains(&one.0))
            .collect()
    }

    /// Takes the mutants of a part to which a comma may belong.
    fn take_with_comma(&mut self, mut span: Span, genre: &str) -> Mutants<'a> {
        let mut taken = self.take(span, genre);
        span.end.column += 1;
        taken.extend(self.take(span, genre));
        taken
    }

    /// Puts texts before and behind a place.
    fn around(&mut self, span: Span, level: u32, mutants: &Mutants<'a>, before: &str, behind: &str) {
        let (begin, end) = self.range(span);
        let numbers: Vec<u32> = mutants.iter().map(|one| one.0).collect();
        self.edits.push(Around {
            begin,
            end,
            before: format!("{}{before}", site_begins(&numbers)),
            behind: format!("{behind}{SITE_ENDS}"),
            level,
            instead: None,
        });
    }

    /// A `match` over which mutant is on.
    fn chosen(mutants: &Mutants<'a>, code: impl Fn(&Listed) -> String, as_it_is: &str) -> String {
        let first = mutants[0].0;
        let arms: String = mutants
            .iter()
            .map(|(number, mutant)| {
                format!(
                    "{} => {{ {} }} ",
                    number - first,
                    arm(*number, &code(mutant))
                )
            })
            .collect();
        format!("match {AT}({first}) {{ {arms}_ => {{ {as_it_is} }} }}")
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else {
            return;
        };
        let span = Span {
            start: of(first.span()).start,
            end: of(last.span()).end,
        };
        let mutants = self.take(span, "FnValue");
        if mutants.is_empty() {
            return;
        }
        let (begin, end) = self.range(of(signature.output.span()));
        if self.text[begin..end].contains("impl ") {
            // All of a function's returns have to be of one type, which it does not name.
            return;
        }
        let returns = |mutant: &Listed| format!("return {};", mutant.replacement);
        let before = Finder::chosen(&mutants, returns, "") + SITE_ENDS;
        let (begin, end) = self.range(span);
        let numbers: Vec<u32> = mutants.iter().map(|one| one.0).collect();
        self.edits.push(Around {
            begin,
            end,
            before: format!("{}{before} ", site_begins(&numbers)),
            behind: String::new(),
            level: 0,
            instead: None,
        });
    }

    fn operator(&mut self, whole: &syn::ExprBinary) {
        let op = of(whole.op.span());
        let mutants = self.take(op, "BinaryOperator");
        if mutants.is_empty() {
            return;
        }
        if matches!(whole.op, BinOp::And(_) | BinOp::Or(_)) {
            return self.lazy(whole, op, &mutants);
        }
        let instead = self.range(op);
        let sign = self.text[instead.0..instead.1].to_owned();
        let assigns = matches!(
            whole.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::MulAssign(_)
                | BinOp::DivAssign(_)
                | BinOp::RemAssign(_)
                | BinOp::BitXorAssign(_)
                | BinOp::BitAndAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::ShlAssign(_)
                | BinOp::ShrAssign(_)
        );
        let span = of(whole.span());
        let left = of(whole.left.span());
        if assigns {
            let (begin, end) = self.range(left);
            let place = self.text[begin..end].to_owned();
            // What is assigned to stands in each arm as it is, so no mutant can be inside it.
            self.skip_inside(left);
            let code = |mutant: &Listed| format!("{place} {} mm_r;", mutant.replacement);
            let behind = format!(
                "; {} }}",
                Finder::chosen(&mutants, code, &format!("{place} {sign} mm_r;"))
            );
            let numbers: Vec<u32> = mutants.iter().map(|one| one.0).collect();
            let (_, whole_end) = self.range(span);
            self.edits.push(Around {
                begin,
                end: whole_end,
                before: String::new(),
                behind: format!("{behind}{SITE_ENDS}"),
                level: 2,
                instead: Some((
                    begin,
                    instead.1,
                    format!("{}{{ let mm_r = ", site_begins(&numbers)),
                )),
            });
            return;
        }
        let code = |mutant: &Listed| format!("*l {} *r", mutant.replacement);
        let chosen = Finder::chosen(&mutants, code, &format!("*l {sign} *r"));
        self.around(
            span,
            2,
            &mutants,
            "(match (&(",
            &format!(")) {{ (l, r) => {chosen} }})"),
        );
        let last = self.edits.len() - 1;
        self.edits[last].instead = Some((instead.0, instead.1, "), &(".to_owned()));
    }

    /// `a && b` is `if a { b } else { false }`, and `a || b` is `if a { true } else { b }`.
    fn lazy(&mut self, whole: &syn::ExprBinary, op: Span, mutants: &Mutants<'a>) {
        if has_let(&whole.left) || has_let(&whole.right) {
            return;
        }
        let [(number, _)] = mutants[..] else {
            return;
        };
        let instead = self.range(op);
        let switched = arm(number, &format!("{ON}({number})"));
        let condition = match whole.op {
            BinOp::And(_) => format!("mm_l ^ {switched}"),
            _ => format!("!(mm_l ^ {switched})"),
        };
        self.around(
            of(whole.span()),
            2,
            mutants,
            "({ let mm_l: bool = ",
            " } else { mm_l } })",
        );
        let last = self.edits.len() - 1;
        self.edits[last].instead = Some((instead.0, instead.1, format!("; if {condition} {{ ")));
    }

    fn sign(&mut self, whole: &syn::ExprUnary) {
        let op = match &whole.op {
            UnOp::Not(token) => of(token.span()),
            UnOp::Neg(token) => of(token.span()),
            _ => return,
        };
        let mutants = self.take(op, "UnaryOperator");
        let [(number, _)] = mutants[..] else {
            return;
        };
        let instead = self.range(op);
        let sign = &self.text[instead.0..instead.1];
        let behind = format!(
            "; if {ON}({number}) {{ {} }} else {{ {sign}mm_v }} }})",
            arm(number, "mm_v")
        );
        let (begin, end) = self.range(of(whole.span()));
        self.edits.push(Around {
            begin,
            end,
            before: String::new(),
            behind: format!("{behind}{SITE_ENDS}"),
            level: 2,
            instead: Some((
                instead.0,
                instead.1,
                format!("{}({{ let mm_v = ", site_begins(&[number])),
            )),
        });
    }

    /// A deleted arm is one whose guard fails. Only arms before one that takes everything are listed.
    fn arm(&mut self, whole: &syn::Arm) {
        let mutants = self.take_with_comma(of(whole.span()), "MatchArm");
        if let Some((_, guard)) = &whole.guard {
            let replaced = self.take(of(guard.span()), "MatchArmGuard");
            if has_let(guard) {
                return;
            }
            if !replaced.is_empty() {
                let first = replaced[0].0;
                let arms: String = replaced
                    .iter()
                    .map(|(number, mutant)| {
                        format!(
                            "{} => {}, ",
                            number - first,
                            arm(*number, &mutant.replacement)
                        )
                    })
                    .collect();
                let before = format!("(match {AT}({first}) {{ {arms}_ => {{ ");
                self.around(of(guard.span()), 1, &replaced, &before, " } })");
            }
        }
        let [(number, _)] = mutants[..] else {
            return;
        };
        let switched = arm(number, &format!("!{ON}({number})"));
        match &whole.guard {
            Some((_, guard)) => {
                let (begin, end) = self.range(of(guard.span()));
                self.edits.push(Around {
                    begin,
                    end,
                    before: format!("{}({switched}) && (", site_begins(&[number])),
                    behind: format!("){SITE_ENDS}"),
                    level: 0,
                    instead: None,
                });
            }
            None => {
                let (begin, end) = self.range(of(whole.pat.span()));
                self.edits.push(Around {
                    begin,
                    end,
                    before: String::new(),
                    behind: format!(" {}if {switched}{SITE_ENDS}", site_begins(&[number])),
                    level: 0,
                    instead: None,
                });
            }
        }
    }

    fn fields(&mut self, whole: &syn::ExprStruct) {
        if whole.rest.is_none() {
            return;
        }
        let (begin, end) = self.range(of(whole.span()));
        let mut mutants: Mutants<'a> = Vec::new();
        let mut copies: BTreeMap<u32, String> = BTreeMap::new();
        for field in &whole.fields {
            let span = of(field.span());
            for one in self.take_with_comma(span, "StructField") {
                let (from, to) = self.range(span);
                let behind = self.text[to..end].trim_start();
                let behind = behind.strip_prefix(',').unwrap_or(behind);
                copies.insert(one.0, format!("{}{behind}", &self.text[begin..from]));
                mutants.push(one);
            }
        }
        if mutants.is_empty() {
            return;
        }
        mutants.sort_by_key(|one| one.0);
        let first = mutants[0].0;
        let arms: String = mutants
            .iter()
            .map(|(number, _)| format!("{} => {}, ", number - first, arm(*number, &copies[number])))
            .collect();
        let before = format!("(match {AT}({first}) {{ {arms}_ => ");
        self.around(of(whole.span()), 2, &mutants, &before, " })");
    }

    /// Gives up the mutants inside a part.
    fn skip_inside(&mut self, part: Span) {
        for (span, found) in &mut self.left_to_find {
            if span.start >= part.start && span.end <= part.end {
                found.clear();
            }
        }
    }

    fn constant(&mut self, walk: impl FnOnce(&mut Self)) {
        self.constants += 1;
        walk(self);
        self.constants -= 1;
    }
}

/// Whether a condition has a `let` that belongs to a chain.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => {
            has_let(&both.left) || has_let(&both.right)
        }
        _ => false,
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_const(&mut self, it: &'a syn::ItemConst) {
        self.constant(|this| visit::visit_item_const(this, it));
    }

    fn visit_impl_item_const(&mut self, it: &'a syn::ImplItemConst) {
        self.constant(|this| visit::visit_impl_item_const(this, it));
    }

    fn visit_trait_item_const(&mut self, it: &'a syn::TraitItemConst) {
        self.constant(|this| visit::visit_trait_item_const(this, it));
    }

    fn visit_item_static(&mut self, it: &'a syn::ItemStatic) {
        self.constant(|this| visit::visit_item_static(this, it));
    }

    fn visit_expr_const(&mut self, it: &'a syn::ExprConst) {
        self.constant(|this| visit::visit_expr_const(this, it));
    }

    fn visit_expr_repeat(&mut self, it: &'a syn::ExprRepeat) {
        self.visit_expr(&it.expr);
        self.constant(|this| this.visit_expr(&it.len));
    }

    fn visit_type_array(&mut self, it: &'a syn::TypeArray) {
        self.constant(|this| visit::visit_type_array(this, it));
    }

    fn visit_generic_argument(&mut self, it: &'a syn::GenericArgument) {
        self.constant(|this| visit::visit_generic_argument(this, it));
    }

    fn visit_variant(&mut self, it: &'a syn::Variant) {
        self.constant(|this| visit::visit_variant(this, it));
    }

    fn visit_pat(&mut self, it: &'a syn::Pat) {
        self.constant(|this| visit::visit_pat(this, it));
    }

    fn visit_item_fn(&mut self, it: &'a syn::ItemFn) {
        let constant = u32::from(it.sig.constness.is_some());
        self.constants += constant;
        self.body(&it.sig, &it.block);
        visit::visit_item_fn(self, it);
        self.constants -= constant;
    }

    fn visit_impl_item_fn(&mut self, it: &'a syn::ImplItemFn) {
        let constant = u32::from(it.sig.constness.is_some());
        self.constants += constant;
        self.body(&it.sig, &it.block);
        visit::visit_impl_item_fn(self, it);
        self.constants -= constant;
    }

    fn visit_trait_item_fn(&mut self, it: &'a syn::TraitItemFn) {
        if let Some(block) = &it.default {
            self.body(&it.sig, block);
        }
        visit::visit_trait_item_fn(self, it);
    }

    fn visit_expr_binary(&mut self, it: &'a syn::ExprBinary) {
        self.operator(it);
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'a syn::ExprUnary) {
        self.sign(it);
        visit::visit_expr_unary(self, it);
    }

    fn visit_arm(&mut self, it: &'a syn::Arm) {
        self.arm(it);
        visit::visit_arm(self, it);
    }

    fn visit_expr_struct(&mut self, it: &'a syn::ExprStruct) {
        self.fields(it);
        visit::visit_expr_struct(self, it);
    }
}
