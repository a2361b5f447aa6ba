// Signs in with the one-time code of a link. The code is in the fragment of the URL, which browsers never send.

const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("code").value = code;
  document.getElementById("code-form").submit();
}
