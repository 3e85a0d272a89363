//! Enums whose variants are stored in the shared memory as numbers.

/// Defines such enums. If the variants have texts, there is one enum, and it also gets `ALL` and a function that
/// returns the text of a variant.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        pub enum $name:ident: $word:ident { $($(#[$note:meta])* $variant:ident = $number:literal => $text:literal,)+ }
        $(#[$about_text:meta])*
        pub fn $function:ident
    ) => {
        numbered! {
            $(#[$about])*
            pub enum $name: $word { $($(#[$note])* $variant = $number),+ }
        }

        impl $name {
            pub const COUNT: usize = [$($name::$variant),+].len();
            pub const ALL: [$name; Self::COUNT] = [$($name::$variant),+];

            $(#[$about_text])*
            pub const fn $function(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }
    };
    (
        $(
            $(#[$about:meta])*
            pub enum $name:ident: $word:ident { $($(#[$note:meta])* $variant:ident = $number:literal),+ $(,)? }
        )+
    ) => {
        $(
            $(#[$about])*
            #[repr($word)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $name { $($(#[$note])* $variant = $number),+ }
        )+
    };
}
pub(crate) use numbered;
