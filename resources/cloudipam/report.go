// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"fmt"
	"maps"
	"slices"
)

// setProblem reports in health why a node lacks addresses, "" for that it does not. The caller has the lock.
func (c *controller) setProblem(name, text string) {
	if c.failed[name] == text {
		return
	}
	c.failed[name] = text
	if text == "" {
		delete(c.failed, name)
	}
	h := c.Health.Child("nodes")
	if len(c.failed) == 0 {
		h.OK("")
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(c.failed)))
	h.Degraded(fmt.Sprintf("%d CiliumNodes lack addresses, %s among them: %s", len(c.failed), first, c.failed[first]), nil)
}

// report reports why a node lacks addresses, and returns whether that is news.
func (c *controller) report(name, text string) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = text != "" && c.failed[name] != text
	c.setProblem(name, text)
	return news
}
