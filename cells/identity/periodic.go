// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// periodicInterval is how often the checks run that no event triggers.
const periodicInterval = 5 * time.Second

// recheckEvery is how many intervals there are between two looks at pods that may get several identities.
const recheckEvery = 12

// runPeriodic expires the quarantine of numbers, detects created identities that were deleted before they were in the
// cache, looks again at pods that may get several identities, and reports the utilization of the range.
func (c *controller) runPeriodic(ctx context.Context) error {
	select {
	case <-c.synced:
	case <-ctx.Done():
		return ctx.Err()
	}
	store, err := c.Identities.Store(ctx)
	if err != nil {
		return err
	}
	reported := &utilization{}
	tick := time.NewTicker(periodicInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		c.retryObjects()
		if n%recheckEvery == 0 {
			c.recheckSeveral()
		}
		if !c.endpointsUndecodable() {
			c.updateAndEnqueue((*table).expireQuarantine)
		}
		c.confirmCreated(func(n identity.Number, at slim.Revision) (exists, fresh bool) {
			fresh = store.Revision() >= at // read first: the store may change meanwhile
			_, exists = store.Get(slim.Key{Name: n.String()})
			return exists, fresh
		})
		c.reportUtilization(reported)
		c.reportIgnored(reported)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endpointsUndecodable reports whether there are endpoints whose numbers cannot be decoded. Until they can, released
// numbers stay in quarantine: these endpoints may have them.
func (c *controller) endpointsUndecodable() bool {
	return c.Endpoints != nil && len(c.Endpoints.undecodable()) > 0
}

// confirmCreated removes created identities that were deleted before they were in the cache, so that they are recreated.
// lookup reports whether the cache has the identity, and whether it is as new as the revision.
func (c *controller) confirmCreated(lookup func(identity.Number, slim.Revision) (exists, fresh bool)) {
	c.updateAndEnqueue(func(t *table) {
		for number, revision := range t.unconfirmed {
			if exists, fresh := lookup(number, revision); fresh && !exists {
				t.deleteObject(number.String(), revision)
			}
		}
	})
}

// utilization is the reported utilization of the range.
type utilization struct {
	passed int    // the highest threshold, in percent
	health string // "" for OK
	// ignored are the namespaces that were named for endpoints that do not count.
	ignored map[string]bool
}

var thresholds = []int{50, 80, 90}

const (
	degradedFrom = 80
	hysteresis   = 5 // below a threshold
)

// crossed records the share of numbers in use, in percent. It reports whether the share crossed a higher threshold.
func (u *utilization) crossed(percent int) bool {
	before, now := u.passed, 0
	for _, threshold := range thresholds {
		if percent >= threshold || before >= threshold && percent >= threshold-hysteresis {
			now = threshold
		}
	}
	u.passed = now
	return now > before
}

// reportUtilization logs a crossed threshold with an Event, and updates health.
func (c *controller) reportUtilization(u *utilization) {
	c.mu.Lock()
	n, awaiting := c.table.numbers, len(c.table.awaitingNumber)
	held, isForLarge := c.table.brakedNamespace()
	percent := n.used() * 100 / n.bounds.Size()
	crossed := u.crossed(percent)
	var top []cardinality
	if crossed {
		top = c.table.topLabels(3)
	}
	c.mu.Unlock()
	if crossed {
		text := fmt.Sprintf("%d%% of the numbers for identities (%d to %d) are in use; the labels with the most values are %s. Pods with new labels do not start when there are none left: leave out labels that differ from pod to pod (option labels)",
			u.passed, n.bounds.Min, n.bounds.Max, describe(top))
		c.Log.Warn("numbers for identities are running out", "usedPercent", u.passed, "min", n.bounds.Min, "max", n.bounds.Max, "topLabels", describe(top))
		c.Events.WarnOnLease("IdentitiesRunOut", text)
	}
	c.reportHealth(u, awaiting, held, isForLarge)
}

// reportHealth says in health that numbers are scarce, and which namespace is held back.
func (c *controller) reportHealth(u *utilization, awaiting int, held string, isForLarge bool) {
	health := ""
	switch {
	case awaiting > 0:
		health = fmt.Sprintf("no number for an identity is free: %d sets of labels wait, and their pods do not start", awaiting)
	case isForLarge:
		health = fmt.Sprintf("pods of namespace %s have large labels, and change them so often that it gets a new identity now and then", held)
	case held != "":
		health = fmt.Sprintf("numbers for identities are scarce, and pods of namespace %s change their labels so often that it gets a new one a second", held)
	case u.passed >= degradedFrom:
		health = fmt.Sprintf("%d%% of the numbers for identities are in use", u.passed)
	}
	if health == u.health {
		return
	}
	u.health = health
	if part := c.Health.Child("numbers"); health != "" {
		part.Degraded(health, nil)
	} else {
		part.OK("")
	}
}

// mostIgnored is how many namespaces are named in the log.
const mostIgnored = 20

// reportIgnored names in the log a namespace whose endpoints name more numbers than count, once (ID-48).
func (c *controller) reportIgnored(u *utilization) {
	if c.Endpoints == nil || !c.Config.OperatorIdentities() {
		return
	}
	namespace, numbers := c.Endpoints.ignored()
	if namespace == "" || u.ignored[namespace] || len(u.ignored) == mostIgnored {
		return
	}
	if u.ignored == nil {
		u.ignored = map[string]bool{}
	}
	u.ignored[namespace] = true
	c.Log.Warn("endpoints without a pod name more identities than count", "namespace", namespace, "ignored", numbers)
}

func describe(all []cardinality) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = fmt.Sprintf("%s (%d)", c.label, c.values)
	}
	return strings.Join(texts, ", ")
}
