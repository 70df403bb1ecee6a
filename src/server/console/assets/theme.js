// Before anything is painted: the theme that was chosen in this browser; without one, the system's.
const chosen = localStorage.getItem("callgate-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
