// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// hints are words about what a person has written on a Service and what has no effect, "" for none.
type hints struct {
	class       string
	annotations string
}

// classNode is the class of Services with addresses of nodes, which another duty serves.
const classNode = "io.cilium/node"

// classOptions are the options that have the classes of Cilium served.
var classOptions = map[string]string{classBGP: "enable-bgp-control-plane", classL2: "enable-l2-announcements", classNode: "enable-node-ipam"}

// hintsOf are those of a Service.
func (s settings) hintsOf(o *serviceObject) hints {
	if o.Spec.Type.String() != typeLoadBalancer {
		return hints{}
	}
	return hints{s.unservedClass(o.Spec.LoadBalancerClass.String()), unknownAnnotations(o)}
}

// unservedClass says why nothing of Cilium serves a class that begins as its classes do. Other classes are those of others.
func (s settings) unservedClass(class string) string {
	if !strings.HasPrefix(class, "io.cilium/") || slices.Contains(s.classes, class) || class == classNode && s.nodes {
		return ""
	}
	if option, known := classOptions[class]; known {
		return fmt.Sprintf("the load-balancer class %s is not served: --%s is off", class, option)
	}
	return fmt.Sprintf("the load-balancer class %s is not known: those of Cilium are %s", class, strings.Join(slices.Sorted(maps.Keys(classOptions)), ", "))
}

// maxNamed is how many unknown annotations are named.
const maxNamed = 3

// unknownAnnotations names the annotations that begin as those of this duty, and that have no effect.
func unknownAnnotations(o *serviceObject) string {
	var unknown []string
	for key := range o.Annotations.All() {
		if !slices.Contains(knownAnnotations, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	slices.Sort(unknown)
	return fmt.Sprintf("%d annotations are not known, and have no effect: %s; known are %s",
		len(unknown), strings.Join(unknown[:min(maxNamed, len(unknown))], ", "), strings.Join(knownAnnotations, ", "))
}

// hint makes Events about what has no effect on a Service, where it is not what was said last. The caller has the lock.
func (c *controller) hint(key slim.Key, o *serviceObject) {
	before, now := c.hinted[key], c.alloc.settings.hintsOf(o)
	if delete(c.hinted, key); now != (hints{}) {
		c.hinted[key] = now
	}
	about := (&service{key: key, uid: o.UID}).reference()
	if now.class != "" && now.class != before.class {
		c.Events.Warning(about, "ClassNotServed", now.class)
	}
	if now.annotations != "" && now.annotations != before.annotations {
		c.Events.Warning(about, "UnknownAnnotation", now.annotations)
	}
}
