// The key that `tavern dev` prints behind the address of this page, for the link to the dashboard.
// Must hold: the key is only in the part of an address that a browser does not send, and in the storage of this tab.

// The dashboard uses the same name.
const STORAGE_KEY = 'tavern.key';

const given = /^#key=(.+)$/.exec(location.hash)?.[1];
if (given) {
  history.replaceState(null, '', location.pathname + location.search);
  sessionStorage.setItem(STORAGE_KEY, decodeURIComponent(given));
}

export const dashboardKey = () => sessionStorage.getItem(STORAGE_KEY);

/** What a link to a page that needs the key ends with; empty if it is not known. */
export const keyPart = () => (dashboardKey() ? `#key=${encodeURIComponent(dashboardKey())}` : '');
