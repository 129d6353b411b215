// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package refusetest

import (
	"errors"
	"fmt"
	"math"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/domain/expression"
)

// Check returns all that Envoy, or an agent, refuses of a configuration, by its schema and beyond.
func Check(spec v2.CiliumEnvoyConfigSpec) (*envoytest.Config, error) {
	c, err := envoytest.Verify(spec)
	errs := []error{err}
	for _, l := range c.Listeners {
		errs = append(errs, checkMessages(l), checkServerNames(l))
	}
	for _, t := range c.Tables {
		errs = append(errs, checkMessages(t), checkDomains(t))
	}
	for _, cl := range c.Clusters {
		errs = append(errs, checkMessages(cl))
	}
	return c, errors.Join(errs...)
}

// CheckPrograms returns which regular expressions of a configuration are larger than an Envoy takes that has a limit of its own.
func CheckPrograms(c *envoytest.Config, most int64) error {
	var errs []error
	check := func(m proto.Message) error {
		r, is := m.(*matcherv3.RegexMatcher)
		if !is {
			return nil
		}
		size, err := expression.Program(r.Regex)
		if err == nil && size > most {
			err = fmt.Errorf("%.300q has %d instructions", r.Regex, size)
		}
		return err
	}
	for _, l := range c.Listeners {
		errs = append(errs, eachMessage(l, check))
	}
	for _, t := range c.Tables {
		errs = append(errs, eachMessage(t, check))
	}
	return errors.Join(errs...)
}

// checkMessages checks each message that is part of one.
func checkMessages(of proto.Message) error { return eachMessage(of, checkMessage) }

// eachMessage returns what is wrong with each message that is part of one.
func eachMessage(of proto.Message, check func(proto.Message) error) error {
	var errs []error
	err := protorange.Range(of.ProtoReflect(), func(at protopath.Values) error {
		m, ok := at.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok || !m.IsValid() {
			return nil
		}
		if err := check(m.Interface()); err != nil {
			errs = append(errs, err)
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// checkMessage checks a message by what the documentation of its fields says.
func checkMessage(m proto.Message) error {
	switch m := m.(type) {
	case *durationpb.Duration:
		return checkDuration(m)
	case *matcherv3.RegexMatcher:
		_, err := compile(m.Regex)
		return err
	case *matcherv3.RegexMatchAndSubstitute:
		return checkSubstitution(m)
	case *routev3.Route:
		return errors.Join(
			checkEdits(m.RequestHeadersToAdd, m.RequestHeadersToRemove), checkEdits(m.ResponseHeadersToAdd, m.ResponseHeadersToRemove))
	case *routev3.RouteAction:
		if m.PrefixRewrite != "" && m.RegexRewrite != nil {
			return errors.New("a path is replaced in two ways")
		}
		return checkTimes(m)
	case *routev3.WeightedCluster:
		return checkWeights(m)
	case *routev3.WeightedCluster_ClusterWeight:
		return errors.Join(
			checkEdits(m.RequestHeadersToAdd, m.RequestHeadersToRemove), checkEdits(m.ResponseHeadersToAdd, m.ResponseHeadersToRemove))
	case *routev3.RetryPolicy:
		return checkRetry(m)
	}
	return nil
}

// checkDuration checks what Envoy turns into milliseconds: 64 bits of nanoseconds.
func checkDuration(d *durationpb.Duration) error {
	if err := d.CheckValid(); err != nil {
		return err
	}
	if d.Seconds < 0 || d.Nanos < 0 || d.Seconds > math.MaxInt64/1_000_000_000 {
		return fmt.Errorf("a duration is %v", d)
	}
	return nil
}

// checkTimes checks the timeouts of a route: what it does without is none.
func checkTimes(a *routev3.RouteAction) error {
	if a.Timeout != nil && a.MaxStreamDuration != nil {
		return errors.New("a route has a timeout and turns the default off")
	}
	return nil
}

func checkWeights(w *routev3.WeightedCluster) error {
	total := uint64(0)
	for _, c := range w.Clusters {
		total += uint64(c.GetWeight().GetValue())
	}
	if total == 0 || total > math.MaxUint32 {
		return fmt.Errorf("the weights of clusters add up to %d", total)
	}
	return nil
}

func checkRetry(p *routev3.RetryPolicy) error {
	b := p.RetryBackOff
	if b == nil {
		return nil
	}
	if base, most := b.BaseInterval.AsDuration(), b.MaxInterval.AsDuration(); base <= 0 || b.MaxInterval != nil && most < base {
		return fmt.Errorf("a retry waits from %v to %v", base, most)
	}
	return nil
}

// checkEdits checks the names and the values of headers that are changed.
func checkEdits(add []*corev3.HeaderValueOption, remove []string) error {
	var errs []error
	name := func(text string) {
		if strings.HasPrefix(text, ":") || strings.EqualFold(text, "host") {
			errs = append(errs, fmt.Errorf("the header %q is changed", text))
		}
	}
	for _, h := range add {
		name(h.GetHeader().GetKey())
		errs = append(errs, checkFormat(h.GetHeader().GetValue()))
	}
	for _, text := range remove {
		name(text)
	}
	return errors.Join(errs...)
}

// checkServerNames checks the server names of filter chains.
func checkServerNames(l *listenerv3.Listener) error {
	var errs []error
	for _, chain := range l.FilterChains {
		for _, name := range chain.GetFilterChainMatch().GetServerNames() {
			if rest := strings.TrimPrefix(name, "*."); rest == "" || strings.Contains(rest, "*") || strings.ToLower(name) != name {
				errs = append(errs, fmt.Errorf("a filter chain is for the server name %q", name))
			}
		}
	}
	return errors.Join(errs...)
}

// checkDomains checks the domains of virtual hosts; that they are unique is known.
func checkDomains(t *routev3.RouteConfiguration) error {
	var errs []error
	for _, v := range t.VirtualHosts {
		if v.Name == "" || len(v.Domains) == 0 {
			errs = append(errs, fmt.Errorf("a virtual host of table %s has no name or no domain", t.Name))
		}
		for _, d := range v.Domains {
			if d == "" || strings.ContainsFunc(d, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				errs = append(errs, fmt.Errorf("table %s has the domain %q", t.Name, d))
			}
		}
	}
	return errors.Join(errs...)
}
