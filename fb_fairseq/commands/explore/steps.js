element.addEventListener('click', event => {
  const token = event.target.closest('[data-step]');
  if (token) trigger('click', {step: Number(token.dataset.step)});
});
watch('value', () => {
  const token = element.querySelector('.ex-selected'), text = token.parentElement;
  const above = token.offsetTop - text.scrollTop, below = above + token.offsetHeight - text.clientHeight;
  if (above < 0) text.scrollTop += above - 4; else if (below > 0) text.scrollTop += below + 8;
});
