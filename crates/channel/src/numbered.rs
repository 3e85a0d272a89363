//! Enums whose variants are stored in the shared memory as numbers.

/// Defines enums with the given numbers. In the first form, each variant has a text. That form defines one enum, which
/// also gets `COUNT`, `ALL` and a function that returns the text of a variant. The second form defines any number of
/// enums without texts.
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
