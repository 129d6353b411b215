// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Config is the decoded resources of a CiliumEnvoyConfig, by name.
type Config struct {
	Spec      v2.CiliumEnvoyConfigSpec
	Listeners map[string]*listenerv3.Listener
	Tables    map[string]*routev3.RouteConfiguration
	Clusters  map[string]*clusterv3.Cluster
}

// Verify decodes a spec and returns all that agents or Envoy would refuse.
func Verify(spec v2.CiliumEnvoyConfigSpec) (*Config, error) {
	c := &Config{spec, map[string]*listenerv3.Listener{}, map[string]*routev3.RouteConfiguration{}, map[string]*clusterv3.Cluster{}}
	var errs []error
	for i, r := range spec.Resources {
		if err := c.decode(r.Raw); err != nil {
			errs = append(errs, fmt.Errorf("resource %d: %w", i, err))
		}
	}
	errs = append(errs, c.checkServices())
	for _, l := range c.Listeners {
		errs = append(errs, c.checkListener(l))
	}
	for _, t := range c.Tables {
		errs = append(errs, c.checkTable(t))
	}
	for _, cl := range c.Clusters {
		errs = append(errs, checkSocket(cl.TransportSocket, true))
	}
	return c, errors.Join(errs...)
}

// VerifyJSON is Verify of a spec as it is on the wire.
func VerifyJSON(text []byte) (*Config, error) {
	var spec v2.CiliumEnvoyConfigSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	return Verify(spec)
}

func (c *Config) decode(text []byte) error {
	packed := &anypb.Any{}
	if err := protojson.Unmarshal(text, packed); err != nil {
		return err
	}
	m, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	if err := m.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
		return err
	}
	switch m := m.(type) {
	case *listenerv3.Listener:
		return add(c.Listeners, m.Name, m)
	case *routev3.RouteConfiguration:
		return add(c.Tables, m.Name, m)
	case *clusterv3.Cluster:
		return add(c.Clusters, m.Name, m)
	}
	return fmt.Errorf("agents do not know resources of type %s", packed.TypeUrl)
}

func add[T any](to map[string]T, name string, m T) error {
	if _, exists := to[name]; exists {
		return fmt.Errorf("two resources are named %s", name)
	}
	to[name] = m
	return nil
}

// checkServices checks that every cluster has endpoints, and every service a listener. Agents redirect a port of a Service to one
// listener; those up to 1.19 redirect a Service to the listener of its last entry alone, which has no name then.
func (c *Config) checkServices() error {
	var errs []error
	offered := map[string]bool{}
	for _, b := range c.Spec.BackendServices {
		for _, port := range b.Ports {
			offered[b.Namespace+"/"+b.Name+":"+port] = true
		}
	}
	redirected := map[string]bool{} // with their ports
	for _, s := range c.Spec.Services {
		name := s.Namespace + "/" + s.Name
		offered[name] = true
		if len(c.Spec.Services) > 1 && (s.Listener == "" || len(s.Ports) == 0) {
			errs = append(errs, fmt.Errorf("an entry of service %s has no listener, or no port", name))
		}
		for _, port := range s.Ports {
			at := fmt.Sprintf("%s:%d", name, port)
			if redirected[at] {
				errs = append(errs, fmt.Errorf("service %s has two entries", at))
			}
			redirected[at] = true
		}
		if s.Listener != "" && c.Listeners[s.Listener] == nil {
			errs = append(errs, fmt.Errorf("service %s refers to the listener %s", s.Name, s.Listener))
		}
	}
	if len(c.Listeners) == 0 {
		errs = append(errs, errors.New("there is no listener"))
	}
	for _, cl := range c.Clusters {
		name := cl.GetEdsClusterConfig().GetServiceName()
		if name == "" {
			name = cl.Name
		}
		if !offered[name] {
			errs = append(errs, fmt.Errorf("cluster %s waits for endpoints %s, which no service has", cl.Name, name))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) checkListener(l *listenerv3.Listener) error {
	var errs []error
	if len(l.FilterChains) == 0 {
		errs = append(errs, fmt.Errorf("listener %s has no filter chains", l.Name))
	}
	matched := map[string]bool{}
	for _, chain := range l.FilterChains {
		names := chain.FilterChainMatch.ServerNames
		if len(names) == 0 {
			names = []string{"*"}
		}
		for _, name := range names {
			key := chain.FilterChainMatch.TransportProtocol + " " + name
			if matched[key] {
				errs = append(errs, fmt.Errorf("listener %s has two filter chains for %s", l.Name, key))
			}
			matched[key] = true
		}
		errs = append(errs, checkSocket(chain.TransportSocket, false))
		for _, f := range chain.Filters {
			errs = append(errs, c.checkFilter(f.GetTypedConfig()))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) checkFilter(packed *anypb.Any) error {
	m, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	if err := m.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
		return err
	}
	switch m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		if name := m.GetRds().GetRouteConfigName(); c.Tables[name] == nil {
			return fmt.Errorf("route table %s does not exist", name)
		}
	case *tcpv3.TcpProxy:
		return c.checkCluster(m)
	}
	return nil
}

// checkCluster checks the clusters that a message refers to.
func (c *Config) checkCluster(m proto.Message) error {
	var names []string
	switch m := m.(type) {
	case *tcpv3.TcpProxy:
		if m.GetCluster() != "" {
			names = append(names, m.GetCluster())
		}
		for _, w := range m.GetWeightedClusters().GetClusters() {
			names = append(names, w.Name)
		}
	case *routev3.RouteAction:
		if m.GetCluster() != "" {
			names = append(names, m.GetCluster())
		}
		for _, w := range m.GetWeightedClusters().GetClusters() {
			names = append(names, w.Name)
		}
		for _, p := range m.RequestMirrorPolicies {
			names = append(names, p.Cluster)
		}
	}
	for _, name := range names {
		if c.Clusters[name] == nil {
			return fmt.Errorf("cluster %s does not exist", name)
		}
	}
	return nil
}

func (c *Config) checkTable(t *routev3.RouteConfiguration) error {
	var errs []error
	domains, hosts := map[string]bool{}, map[string]bool{}
	for _, v := range t.VirtualHosts {
		if hosts[v.Name] {
			errs = append(errs, fmt.Errorf("table %s has two virtual hosts %s", t.Name, v.Name))
		}
		hosts[v.Name] = true
		for _, d := range v.Domains {
			if domains[strings.ToLower(d)] {
				errs = append(errs, fmt.Errorf("table %s has the domain %s twice", t.Name, d))
			}
			domains[strings.ToLower(d)] = true
		}
		for _, r := range v.Routes {
			if a := r.GetRoute(); a != nil {
				errs = append(errs, c.checkCluster(a))
			}
			errs = append(errs, checkRegexes(r))
		}
	}
	return errors.Join(errs...)
}

func checkRegexes(r *routev3.Route) error {
	texts := []string{r.Match.GetSafeRegex().GetRegex(), r.GetRoute().GetRegexRewrite().GetPattern().GetRegex(), r.GetRedirect().GetRegexRewrite().GetPattern().GetRegex()}
	for _, h := range r.Match.Headers {
		texts = append(texts, h.GetStringMatch().GetSafeRegex().GetRegex())
	}
	for _, q := range r.Match.QueryParameters {
		texts = append(texts, q.GetStringMatch().GetSafeRegex().GetRegex())
	}
	i := slices.IndexFunc(texts, func(text string) bool { _, err := regexp.Compile(text); return err != nil })
	if i >= 0 {
		return fmt.Errorf("regular expression %q does not compile", texts[i])
	}
	return nil
}
