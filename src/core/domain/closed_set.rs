//! Closed sets: enums whose members have stable names, and codes by their order.

/// Defines an enum, each member with its stable name. The store keeps a member as its index, so that members are only
/// ever added, at the end.
macro_rules! closed_set {
    ($(#[$of_set:meta])* pub enum $set:ident { $($(#[$of_member:meta])* $member:ident = $name:literal,)+ }) => {
        $(#[$of_set])*
        pub enum $set {
            $($(#[$of_member])* $member,)+
        }

        impl $set {
            /// Every member, in the order of their codes.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$member),+];

            /// The stable name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$member => $name,)+
                }
            }

            /// The member of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|member| member.as_str() == name)
            }
        }
    };
}
pub(crate) use closed_set;
