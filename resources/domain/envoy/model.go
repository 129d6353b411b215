// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"iter"
	"time"
)

// Name is a namespaced name.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Model is what one CiliumEnvoyConfig is translated from. It is not changed after it was translated.
type Model struct {
	HTTP        []Listener
	Passthrough []Passthrough
	// HTTPSPorts are the ports of listeners for HTTPS that have no valid certificate. Nothing is served there, but the names of
	// listeners of Envoy stay when that changes.
	HTTPSPorts []uint32
	// RefusedAuths are the filters for authorization of namespaces that there is no space for, by [ExternalAuth.Filter]. Requests of routes with them are answered
	// with 500, unless another namespace has the same one (ENV-45).
	RefusedAuths map[Name]bool
}

// Listener accepts HTTP for a host name.
type Listener struct {
	Claim             // of the object that it is of; needed for [Options.Owners] alone
	Hostname   string // "" for all
	Port       uint32
	TLS        bool   // routes are those of HTTPS, also without a usable secret
	Secrets    []Name // certificates
	ForceHTTPS bool   // of a TLS listener: plain requests for its routes are redirected
	// Exclusive has the host name be that of its routes alone: without any, routes of less specific names do not serve it.
	Exclusive bool
	// Unserved are host names of objects none of whose routes can be written: routes of less specific names do not serve them, either.
	Unserved []string
	// Absent says that the object has no place in the configuration: nothing else is served at its hosts.
	Absent bool
	// Unclosed says that there is no space to have nothing answer for its hosts where it is absent: wider names of others do, whereas others that name
	// these do not have them. It is for [Options.Owners] alone.
	Unclosed bool
	// Claimed says that the object names the host and has nothing to be served there: others do not have the host, and wider names of its own answer.
	// It is for [Options.Owners] alone.
	Claimed bool
	Routes  []*Route      // for its host name
	Named   []NamedRoutes // for others; only without [Options.Owners]
	// RedirectPort is the port of redirects that name neither a scheme nor a port, 0 for that of the request.
	RedirectPort uint32

	rank int // of the namespace at the host, by age: 0 for its owner
	// closed are hosts that have the routes in place of the host name, which is a wider one, forced that they are all redirected to HTTPS.
	closed []string
	forced bool
}

// host is the name of the virtual host for the routes of a listener.
func (l Listener) host() string {
	if len(l.closed) > 0 {
		return l.closed[0]
	}
	return orAll(l.Hostname)
}

// NamedRoutes are routes with host names of their own. They may be in many listeners, and in many models.
type NamedRoutes struct {
	Hostnames []string
	Routes    []Route // see Route
}

// all are the routes, with the host names that each of them has.
func (l Listener) all() iter.Seq2[[]string, *Route] {
	return func(yield func([]string, *Route) bool) {
		host := []string{l.host()}
		for _, r := range l.Routes {
			if !yield(host, r) {
				return
			}
		}
		for _, named := range l.Named {
			for i := range named.Routes {
				if !yield(named.Hostnames, &named.Routes[i]) {
					return
				}
			}
		}
	}
}

// Passthrough sends what TLS connections have on by their server names.
type Passthrough struct {
	Source    Name      // the object that it is of
	Created   time.Time // of the object; needed for [Options.Owners] alone
	Hostnames []string
	Port      uint32
	Backends  []Backend
	// Exclusive has the host names be those of their routes alone: without any, connections are closed, and those of less specific names
	// do not get them. It has no backends then.
	Exclusive bool
	// Secrets are the certificates that TLS is terminated with before; without any it is passed through as it is.
	Secrets []Name
}

func (p Passthrough) claim() Claim { return Claim{p.Source, p.Created} }

// MatchKind is how a value is compared.
type MatchKind int

// The kinds of matches. A path matches none by default: every path does.
const (
	Any MatchKind = iota
	Exact
	Prefix
	Regex
)

// Match is a comparison with a value.
type Match struct {
	Kind  MatchKind
	Value string
}

// NamedMatch is a comparison of a header or a query parameter.
type NamedMatch struct {
	Name string
	Match
}

// Route is a set of requests, and what is done with them. Translations compare routes by address: a route is not changed
// once it is part of a model.
type Route struct {
	Source  Name // the object that it is of
	Path    Match
	Headers []NamedMatch
	Queries []NamedMatch
	Method  string
	// Fallback has all other routes of the host go first, and none of them merged with it.
	Fallback bool
	// Refused says that Envoy would refuse it: it is not written. Its host is there, also if it has no other routes.
	Refused bool

	Backends  []Backend
	NoBackend uint32 // the status code of a route without backends, 0 for 500
	// Lost is the weight of backends that are not valid: their share of the requests is answered as those of a route without backends.
	Lost     uint64
	Redirect *Redirect
	Rewrite  *Rewrite
	Mirrors  []Mirror
	// RequestTimeout and BackendTimeout are unset if nil; 0 is no timeout.
	RequestTimeout, BackendTimeout  *time.Duration
	RequestHeaders, ResponseHeaders *HeaderEdit
	GRPC                            bool
	Retry                           *Retry
	CORS                            *CORS
	Auth                            *ExternalAuth // nil: no server is asked
}

// Retry has requests that failed sent again: if there was no response, and for some status codes.
type Retry struct {
	Attempts *uint32 // nil for Envoy's own, 1
	Codes    []uint32
	Backoff  time.Duration // 0 for Envoy's own
}

// Backend is a port of a Service.
type Backend struct {
	Name
	Port            string  // its number, or its name
	Weight          *uint32 // nil for 1
	AppProtocol     string
	TLS             *UpstreamTLS // nil to speak without TLS; equal for all backends of a port that have it
	RequestHeaders  *HeaderEdit
	ResponseHeaders *HeaderEdit
}

// cluster is the name of the cluster of a backend. With TLS it is another one: a port may get TLS that is passed through, too.
func (b Backend) cluster() string {
	name := b.Namespace + ":" + b.Name.Name + ":" + b.Port
	if b.TLS != nil {
		name += ":tls"
	}
	return name
}

// HeaderEdit changes headers.
type HeaderEdit struct {
	Add, Set []Header
	Remove   []string
}

// Header is a header of HTTP.
type Header struct{ Name, Value string }

// Rewrite changes requests before they are sent on. At most one of the paths is set.
type Rewrite struct {
	Host         string  // "" to keep it
	PrefixPath   *string // in place of the prefix that has matched
	CompletePath *string
}

// Redirect answers with another location.
type Redirect struct {
	Scheme, Host string
	Port         uint32 // 0: that of the scheme, or the listener's
	Code         int    // 0 for 301
	PrefixPath   *string
	CompletePath *string

	listenerPort uint32 // where it is, if that matters
}

// hasPortOfListener reports whether the new location has the port of the listener.
func (to *Redirect) hasPortOfListener() bool {
	return to != nil && to.Port == 0 && to.Scheme == ""
}

// Mirror is a backend that gets copies of requests.
type Mirror struct {
	Backend
	// Numerator and Denominator are the share of requests; 0 and 0 for all.
	Numerator, Denominator uint32
}

// Problem is a part of a model that is left out.
type Problem struct {
	Source  Name
	Message string
	Owner   Name // the object that has what is left out; zero if none has it
}
