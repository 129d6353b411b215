// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"slices"
	"strconv"
	"strings"
)

// MostOfRoute is how many bytes are written at most for one match of a rule, at one host (ENV-40).
const MostOfRoute = 256 << 10

// Size is about what is written for routes at one host, in bytes, with what is escaped. What switches off the filters of others is not among it, nor what
// the host has once.
type Size struct {
	Total   int
	Largest int // of one of them
	Routes  int // of Envoy that they become
}

// SizeOf returns the size of routes, as it is with options (ENV-40). What routes in a row share, as the matches of a rule do, is read once.
func SizeOf(all []Route, o Options) (s Size) {
	shared := 0
	for i := range all {
		if i == 0 || !all[i].sharesAll(&all[i-1]) {
			shared = all[i].sharedSize()
		}
		size := shared + all[i].matchedSize(o)
		s.Total, s.Largest, s.Routes = s.Total+size, max(s.Largest, size), s.Routes+all[i].becoming().all()
	}
	return s
}

// HostSize is about what is written for a host name beside its routes, in bytes.
func HostSize(name string) int {
	return len(`{"domains":["",":*"],"name":"","routes":[]},`) + 3*len(name)
}

// size is [SizeOf] for one route.
func (r *Route) size(o Options) int { return r.sharedSize() + r.matchedSize(o) }

// sharesAll reports whether routes have the same but for what they match. It may be false for such ones.
func (r *Route) sharesAll(other *Route) bool {
	isSame := func(a, b []Backend) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }
	return isSame(r.Backends, other.Backends) && r.Lost == other.Lost && r.NoBackend == other.NoBackend && r.Redirect == other.Redirect && r.Rewrite == other.Rewrite &&
		len(r.Mirrors) == len(other.Mirrors) && (len(r.Mirrors) == 0 || &r.Mirrors[0] == &other.Mirrors[0]) &&
		r.RequestTimeout == other.RequestTimeout && r.BackendTimeout == other.BackendTimeout && r.RequestHeaders == other.RequestHeaders &&
		r.ResponseHeaders == other.ResponseHeaders && r.Retry == other.Retry && r.CORS == other.CORS && r.Auth == other.Auth
}

// becoming is how many routes of Envoy a route becomes.
type becoming struct {
	preflights int // that answer the preflight requests of CORS
	lost       int // for the share of backends that are not valid
	served     int
}

func (n becoming) all() int { return n.preflights + n.lost + n.served }

// becoming counts what routes returns.
func (r *Route) becoming() becoming {
	n := becoming{served: 1}
	if r.losesShare() {
		n.lost = 1
	}
	if r.CORS == nil {
		return n
	}
	if n.preflights = 1; !r.CORS.all() {
		n.preflights = 2
	}
	if !r.CORS.uniform() {
		n.served = 2
	}
	return n
}

// textSize is the length of a text in JSON.
func textSize(s string) int {
	size := len(`""`) + len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t', c == '\b', c == '\f':
			size++
		case c < 0x20:
			size += len(`\u0000`) - 1
		case c == 0xe2 && (strings.HasPrefix(s[i:], "\u2028") || strings.HasPrefix(s[i:], "\u2029")):
			size += len(`\u2028`) - len("\u2028")
		}
	}
	return size
}

func numberSize(n uint64) int { return len(strconv.FormatUint(n, 10)) }

// listSize is the size of a list with its key, 0 without items. Items have a comma each.
func listSize(key string, items int) int {
	if items == 0 {
		return 0
	}
	return len(`,"":[]`) + len(key) + items
}

// matchSize is the size of what a value is compared with, after the name.
func matchSize(m Match) int {
	switch {
	case m.Kind == Exact && m.Value != "":
		return len(`,"stringMatch":{"exact":}`) + textSize(m.Value)
	case m.Kind == Prefix:
		return len(`,"stringMatch":{"prefix":}`) + textSize(m.Value)
	case m.Kind == Regex:
		return len(`,"stringMatch":{"safeRegex":{"regex":}}`) + textSize(m.Value)
	}
	return 0
}

func namedSize(m NamedMatch) int { return len(`{"name":},`) + textSize(m.Name) + matchSize(m.Match) }

func namedSizes(all []NamedMatch) (size int) {
	for _, m := range all {
		size += namedSize(m)
	}
	return size
}

// matchedSize is the size of what a route matches, and of what depends on that.
func (r *Route) matchedSize(o Options) int {
	n, headers, method := r.becoming(), namedSizes(r.Headers), 0
	if o.isByScheme(r) {
		headers += len(`{"invertMatch":true,"name":"X-Forwarded-Proto","stringMatch":{"exact":,"ignoreCase":true}},`) + textSize(r.Redirect.Scheme)
	}
	if r.Method != "" {
		method = namedSize(NamedMatch{":method", Match{Exact, r.Method}})
	}
	size := n.all()*(len(`{"match":{}},`)+r.pathSize()+listSize("queryParameters", namedSizes(r.Queries))) + n.served*r.replacementSize()
	size += (n.served + n.lost) * listSize("headers", headers+method)
	if n.preflights > 0 {
		asked := namedSize(NamedMatch{":method", Match{Exact, "OPTIONS"}}) + namedSize(NamedMatch{Name: "origin"})
		asked += namedSize(NamedMatch{"access-control-request-method", Match{Exact, r.Method}})
		size += n.preflights * listSize("headers", headers+asked)
	}
	return size
}

func (r *Route) pathSize() int {
	switch p := r.normalPath(); {
	case p.Kind == Exact:
		return len(`"path":`) + textSize(p.Value)
	case p.Kind == Regex:
		return len(`"safeRegex":{"regex":}`) + textSize(p.Value)
	case p.Value == "/":
		return len(`"prefix":"/"`)
	default:
		return len(`"pathSeparatedPrefix":`) + textSize(p.Value)
	}
}

// replacementSize is the size of the path in place of that of the request. How it is written depends on what was matched.
func (r *Route) replacementSize() int {
	var prefix, complete *string
	switch {
	case r.Redirect != nil:
		prefix, complete = r.Redirect.PrefixPath, r.Redirect.CompletePath
	case r.Rewrite != nil && totalWeight(r.Backends) > 0:
		prefix, complete = r.Rewrite.PrefixPath, r.Rewrite.CompletePath
	}
	const regexSize = len(`"regexRewrite":{"pattern":{"regex":},"substitution":},`)
	switch {
	case complete != nil && r.Redirect != nil:
		return len(`"pathRedirect":,`) + textSize(*complete)
	case complete != nil:
		return regexSize + len(`"^/.*$"`) + textSize(literal(*complete))
	case prefix != nil:
		if regex := r.prefixRegex(*prefix); regex != nil {
			return regexSize + textSize(regex.Pattern.Regex) + textSize(regex.Substitution)
		}
		return len(`"prefixRewrite":,`) + textSize(*prefix)
	}
	return 0
}

// answerSize is the size of a direct response.
const answerSize = len(`,"directResponse":{"body":{"inlineString":""},"status":500}`)

// redirectedSize is the size of the route that has the requests redirected to HTTPS.
func (r *Route) redirectedSize() int {
	asked := Route{Path: r.Path, Headers: r.Headers, Queries: r.Queries, Method: r.Method}
	return asked.matchedSize(Options{}) + len(`,"redirect":{"httpsRedirect":true}`)
}

// sharedSize is the size of what does not depend on what is matched.
func (r *Route) sharedSize() int {
	n := r.becoming()
	size := n.lost * (len(`,"runtimeFraction":{"defaultValue":{"denominator":"MILLION","numerator":100000}}`) + answerSize)
	size += n.served * (r.RequestHeaders.size("request") + r.ResponseHeaders.size("response") + r.actionSize())
	if r.CORS != nil {
		size += r.CORS.size(n)
	}
	return size
}

// size is the size of edits, of the requests or the responses.
func (e *HeaderEdit) size(of string) int {
	if e == nil {
		return 0
	}
	added, removed := 0, 0
	for _, h := range e.Add {
		added += headerSize(h)
	}
	for _, h := range e.Set {
		added += headerSize(h) + len(setAction)
	}
	for _, name := range e.Remove {
		removed += textSize(name) + len(`,`)
	}
	return listSize(of+"HeadersToAdd", added) + listSize(of+"HeadersToRemove", removed)
}

const setAction = `"appendAction":"OVERWRITE_IF_EXISTS_OR_ADD",`

func headerSize(h Header) int {
	size := len(`{"header":{"key":}},`) + textSize(h.Name)
	if h.Value != "" {
		size += len(`,"value":`) + textSize(formatted(h.Value))
	}
	return size
}

func (r *Route) actionSize() int {
	switch {
	case r.Redirect != nil:
		return r.Redirect.size()
	case totalWeight(r.Backends) == 0:
		return answerSize
	}
	size := len(`,"route":{}`) + backendsSize(r.Backends) + r.Retry.size()
	if r.Retry != nil && r.BackendTimeout != nil {
		size += len(`"perTryTimeout":"10s",`)
	}
	if r.timeout() != nil {
		size += len(`"timeout":"10s"`)
	} else {
		size += len(`"maxStreamDuration":{"maxStreamDuration":"0s"}`)
	}
	if r.Rewrite != nil && r.Rewrite.Host != "" {
		size += len(`"hostRewriteLiteral":,`) + textSize(r.Rewrite.Host)
	}
	mirrors := 0
	for _, m := range r.Mirrors {
		mirrors += len(`{"cluster":,"runtimeFraction":{"defaultValue":{"numerator":100}}},`) + m.clusterSize()
	}
	return size + listSize("requestMirrorPolicies", mirrors)
}

// clusterSize is the size of the name of the cluster.
func (b *Backend) clusterSize() int {
	size := len(`"::"`) + len(b.Namespace) + len(b.Name.Name) + len(b.Port)
	if b.TLS != nil {
		size += len(`:tls`)
	}
	return size
}

func backendsSize(all []Backend) (size int) {
	for _, b := range all {
		size += b.clusterSize() + b.RequestHeaders.size("request") + b.ResponseHeaders.size("response")
	}
	if len(all) == 1 {
		return size + len(`"cluster":,`)
	}
	return size + len(`"weightedClusters":{"clusters":[]},`) + len(all)*len(`{"name":,"weight":1},`)
}

func (r *Retry) size() int {
	if r == nil {
		return 0
	}
	size, codes := len(`"retryPolicy":{"retryOn":"`+retriedOn+`"},`), 0
	if r.Attempts != nil {
		size += len(`"numRetries":,`) + numberSize(uint64(*r.Attempts))
	}
	if r.Backoff > 0 {
		size += len(`"retryBackOff":{"baseInterval":"10s","maxInterval":"20s"},`)
	}
	for _, code := range r.Codes {
		codes += numberSize(uint64(code)) + len(`,`)
	}
	return size + listSize("retriableStatusCodes", codes)
}

// size is that of a redirect without its path.
func (to *Redirect) size() int {
	size := len(`,"redirect":{}`)
	if to.Host != "" {
		size += len(`"hostRedirect":,`) + textSize(to.Host)
	}
	if to.port() != 0 {
		size += len(`"portRedirect":8080,`)
	}
	if code := redirectCodes[to.Code]; code != 0 {
		size += len(`"responseCode":"",`) + len(code.String())
	}
	if to.Scheme != "" {
		size += len(`"schemeRedirect":,`) + textSize(to.Scheme)
	}
	return size
}

// size is the size of what routes have for CORS, beside what they match.
func (c *CORS) size(n becoming) int {
	const vary = len(`{"header":{"key":"vary","value":"Origin"}},`)
	added := func(items int) int { return listSize("responseHeadersToAdd", items) }
	others := len(`{"invertMatch":true,"name":"origin"},`)
	if !c.all() {
		others = 0
		for _, m := range c.Origins {
			others += namedSize(NamedMatch{"origin", m}) + len(`"invertMatch":true,"treatMissingHeaderAsEmpty":true,`)
		}
	}
	headers := vary + c.headersSize()
	size := answerSize + added(headers+c.preflightSize()) + added(headers)
	if n.preflights > 1 {
		size += answerSize + others + added(vary)
	}
	if n.served > 1 {
		size += others + added(vary)
	}
	return size
}

// listHeaderSize is the size of a header that has a list of names.
func listHeaderSize(name string, all []string) int {
	value := len(`"*"`)
	if !slices.Contains(all, "*") {
		value = len(`""`) + max(0, len(all)-1)*len(`, `)
		for _, one := range all {
			value += textSize(one) - len(`""`) + strings.Count(one, "%")
		}
	}
	return len(`{`+setAction+`"header":{"key":"","value":}},`) + len(name) + value
}

// headersSize is that of headers, but for vary.
func (c *CORS) headersSize() int {
	size := listHeaderSize("access-control-allow-origin", []string{"(REQ(origin)("})
	if c.Credentials {
		size += listHeaderSize("access-control-allow-credentials", []string{"true"})
	}
	if len(c.ResponseHeaders) > 0 && !(c.Credentials && slices.Contains(c.ResponseHeaders, "*")) {
		size += listHeaderSize("access-control-expose-headers", c.ResponseHeaders)
	}
	return size
}

// preflightSize is that of preflightHeaders, but for headers.
func (c *CORS) preflightSize() (size int) {
	if len(c.Methods) > 0 {
		size += listHeaderSize("access-control-allow-methods", c.Methods)
	}
	if len(c.RequestHeaders) > 0 {
		size += listHeaderSize("access-control-allow-headers", c.RequestHeaders)
	}
	if c.MaxAge > 0 {
		size += listHeaderSize("access-control-max-age", []string{strconv.FormatUint(uint64(c.MaxAge), 10)})
	}
	return size
}
