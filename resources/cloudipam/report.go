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

// reportUnfit reports what the cloud shows as addresses of a node, and what no pod can have (CIPAM-44).
func (c *controller) reportUnfit(name string, all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.setUnfit(name, all) {
		c.Log.Warn("the cloud shows addresses that no pod can have, and they are left out", "node", name, "addresses", c.unfit[name])
	}
}

// setUnfit sets what health says of it, and returns whether that is news. The caller has the lock.
func (c *controller) setUnfit(name string, all []string) (news bool) {
	slices.Sort(all)
	text := fmt.Sprintf("%.100q", all[:min(len(all), 5)])
	if len(all) == 0 {
		text = ""
	}
	if c.unfit[name] == text {
		return false
	}
	c.unfit[name] = text
	if text == "" {
		delete(c.unfit, name)
	}
	h := c.Health.Child("addresses")
	if len(c.unfit) == 0 {
		h.OK("")
		return false
	}
	first := slices.Min(slices.Collect(maps.Keys(c.unfit)))
	h.Degraded(fmt.Sprintf("the cloud shows addresses that no pod can have for %d CiliumNodes, %s among them: %s", len(c.unfit), first, c.unfit[first]), nil)
	return text != ""
}
