// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package control

import "time"

// InfoFile is the name of the file in a devcluster's directory that holds its
// Info as JSON. It appears once the devcluster is ready and carries the token
// of the control API, so it is readable by its owner only.
const InfoFile = "control.json"

// The backends that a Proxy can stand before. An etcd member is named by
// EtcdBackend.
const BackendAPIServer = "apiserver"

// Info says where everything of a running devcluster is.
type Info struct {
	// PID is the devcluster's process. Members of a multi-member etcd are
	// processes of their own, see Member.
	PID int `json:"pid"`
	// Control is the URL of the control API and Token its bearer token.
	Control string `json:"control"`
	Token   string `json:"token"`

	// APIServer is the URL of the API server itself, empty for an etcd without
	// a control plane.
	APIServer string `json:"apiServer,omitempty"`
	// Kubeconfig leads an administrator straight to the API server,
	// ProxyKubeconfig through the proxy named BackendAPIServer, whose host:port
	// is ProxyAddress.
	Kubeconfig      string `json:"kubeconfig,omitempty"`
	ProxyKubeconfig string `json:"proxyKubeconfig,omitempty"`
	ProxyAddress    string `json:"proxyAddress,omitempty"`
	// AuditLog is a file of JSON lines, one per finished request.
	AuditLog string `json:"auditLog,omitempty"`

	Etcd Etcd `json:"etcd"`

	// ReadySeconds is the time from process start to ready.
	ReadySeconds float64 `json:"readySeconds"`
}

// Etcd says how to reach an etcd cluster.
type Etcd struct {
	Members []Member `json:"members"`
	// CAFile, CertFile and KeyFile are set when the members speak TLS; they
	// then also ask clients for a certificate.
	CAFile   string `json:"caFile,omitempty"`
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// Username and Password are set when authentication is on.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// Endpoints lists the members' own client URLs.
func (e Etcd) Endpoints() []string {
	urls := make([]string, 0, len(e.Members))
	for _, m := range e.Members {
		urls = append(urls, m.Endpoint)
	}
	return urls
}

// ProxyEndpoints lists client URLs that lead through each member's fault proxy.
func (e Etcd) ProxyEndpoints() []string {
	urls := make([]string, 0, len(e.Members))
	for _, m := range e.Members {
		urls = append(urls, m.ProxyEndpoint)
	}
	return urls
}

// Member is one etcd member.
type Member struct {
	// Name is also the name of the backend and of the proxy in front of it.
	Name          string `json:"name"`
	Endpoint      string `json:"endpoint"`
	ProxyEndpoint string `json:"proxyEndpoint"`
	// PID is the member's process; 0 while it is down. It equals Info.PID for a
	// member that runs inside the devcluster and so cannot be controlled.
	PID    int  `json:"pid"`
	Paused bool `json:"paused,omitempty"`
}

// Proxy is one front door: a TCP address before one backend, with faults of its
// own. Several proxies of one backend are independent.
type Proxy struct {
	ID      string `json:"id"`
	Backend string `json:"backend"`
	// Address is host:port. It stays reserved while the proxy refuses.
	Address string `json:"address"`
	// Kubeconfig leads an administrator through this proxy (API server only).
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Link       Link   `json:"link"`
	// Connections counts those that are open, Accepted all there ever were.
	Connections int   `json:"connections"`
	Accepted    int64 `json:"accepted"`
	// BytesUp and BytesDown count what was delivered to the backend and to the
	// clients.
	BytesUp   int64 `json:"bytesUp"`
	BytesDown int64 `json:"bytesDown"`
}

// NewProxy asks for another front door.
type NewProxy struct {
	// ID is chosen by the devcluster if empty.
	ID string `json:"id,omitempty"`
	// Backend is BackendAPIServer (the default) or the name of a Member.
	Backend string `json:"backend,omitempty"`
	// Link is the state the proxy starts in, for example refusing.
	Link Link `json:"link"`
	// Seed of every random choice of this proxy; 0 means 1.
	Seed uint64 `json:"seed,omitempty"`
}

// Link is the state of a proxy's TCP side. It applies at once, to open
// connections as well as to new ones.
type Link struct {
	// Refuse closes the listener: the kernel answers new connections with
	// "connection refused". Open connections are left alone, see Cut.
	Refuse bool `json:"refuse,omitempty"`
	// Up is the direction from client to server, Down the other.
	Up   Direction `json:"up"`
	Down Direction `json:"down"`
}

// Direction is the state of one direction of a Link. The zero value lets
// everything through. Durations are nanoseconds in JSON.
type Direction struct {
	// BlackHole keeps connections open and moves no byte; what a peer has sent
	// meanwhile is delivered when the hole is closed, as after a network
	// partition. What a peer had sent that has reset its connection is lost.
	BlackHole bool `json:"blackHole,omitempty"`
	// Delay is the latency of each byte; Jitter adds up to as much at random.
	// Order is kept, and bytes travel in parallel: latency does not limit
	// throughput.
	Delay  time.Duration `json:"delay,omitempty"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// BytesPerSecond limits each connection's throughput; 0 means no limit.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// CutAfter resets a connection once so many bytes were delivered in this
	// direction since this state was set; 0 means never.
	CutAfter int64 `json:"cutAfter,omitempty"`
}

// CutConnections closes all open connections of a proxy.
type CutConnections struct {
	// Finish ends them with FIN, as an orderly server would, instead of RST.
	Finish bool `json:"finish,omitempty"`
}

// CutWatches ends the watches that are open now.
type CutWatches struct {
	Match Match `json:"match"`
	// How is as in a rule; After and Jitter are ignored.
	How CutWatch `json:"how"`
}

// Count is the answer of an operation that touches a number of things.
type Count struct {
	Count int `json:"count"`
}

// Rule is a fault at HTTP level. It applies to requests that match, and says
// exactly one of Status, Delay, LoseAnswer, Spoil, CutWatch and HoldWatch.
//
// Rules are tried in the order in which they were added: delays add up, and the
// first Status, LoseAnswer or Spoil that fires is the last rule for its request.
type Rule struct {
	// ID is chosen by the proxy if empty.
	ID    string `json:"id,omitempty"`
	Match Match  `json:"match"`

	// Skip lets so many matching requests pass first; Every is the distance
	// between two that count from then on (0: all count); Times bounds how often
	// the rule fires (0: no bound); Probability is the chance of firing (0:
	// always), drawn from a sequence that depends only on the proxy's seed, the
	// rule's ID and how many requests matched before.
	Skip        int     `json:"skip,omitempty"`
	Every       int     `json:"every,omitempty"`
	Times       int     `json:"times,omitempty"`
	Probability float64 `json:"probability,omitempty"`

	Status     *Status     `json:"status,omitempty"`
	Delay      *Delay      `json:"delay,omitempty"`
	LoseAnswer *LoseAnswer `json:"loseAnswer,omitempty"`
	Spoil      *Spoil      `json:"spoil,omitempty"`
	CutWatch   *CutWatch   `json:"cutWatch,omitempty"`
	HoldWatch  *HoldWatch  `json:"holdWatch,omitempty"`

	// Hits counts how often the rule fired: requests, or watches cut or held.
	// Set by the proxy.
	Hits int `json:"hits,omitempty"`
}

// Match selects requests. Lists match any of their elements; an empty list
// matches everything.
type Match struct {
	// Verbs are Kubernetes verbs: get, list, watch, create, update, patch,
	// delete, deletecollection; lower-case HTTP methods for other paths.
	Verbs []string `json:"verbs,omitempty"`
	// Resources are "resource", "resource/subresource" or "*/subresource";
	// a plain resource matches without its subresources.
	Resources []string `json:"resources,omitempty"`
	// Groups are API groups; the core group is "core".
	Groups     []string `json:"groups,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	// PathPrefixes match the URL's path.
	PathPrefixes []string `json:"pathPrefixes,omitempty"`
	// UserAgent is a substring of the User-Agent header.
	UserAgent string `json:"userAgent,omitempty"`
}

// Status answers in the server's place; the request never reaches it.
type Status struct {
	// Code is an HTTP status code from 400 to 599.
	Code int `json:"code"`
	// RetryAfter, in whole seconds, sets the header and the detail of that name.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// Message replaces the default one.
	Message string `json:"message,omitempty"`
}

// Delay holds a request back before it is forwarded.
type Delay struct {
	// For is the time; Jitter adds up to as much at random. For < 0 holds the
	// request until the rule is removed or the client gives up.
	For    time.Duration `json:"for"`
	Jitter time.Duration `json:"jitter,omitempty"`
}

// LoseAnswer forwards the request and lets the server finish it, but the client
// sees its stream broken instead of the answer.
type LoseAnswer struct {
	// Connection resets the client's whole connection, not only the stream.
	Connection bool `json:"connection,omitempty"`
}

// CutWatch ends each matching watch, those already open included.
type CutWatch struct {
	// After is the time from the start of the watch, or from the rule's if that
	// is later; Jitter adds up to as much at random.
	After  time.Duration `json:"after"`
	Jitter time.Duration `json:"jitter,omitempty"`
	// Abrupt breaks the stream instead of ending it between two events.
	Abrupt bool `json:"abrupt,omitempty"`
	// Expire ends it with an ERROR event "410 Gone", reason Expired.
	Expire bool `json:"expire,omitempty"`
}

// HoldWatch delivers the events of each matching watch late and in order, while
// everything else flows: a stale cache. Lists are not held.
type HoldWatch struct {
	// For is how late; 0 holds until the rule is removed.
	For time.Duration `json:"for,omitempty"`
}

// Request is what a proxy saw of one request.
type Request struct {
	// Seq numbers a proxy's requests from 1 in the order of their arrival.
	Seq int64 `json:"seq"`
	// Received is when the request's header had arrived.
	Received time.Time `json:"received"`
	Method   string    `json:"method"`
	// Path includes the query.
	Path        string `json:"path"`
	UserAgent   string `json:"userAgent,omitempty"`
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// Status is the code that the client got: 0 while there is none, -1 if its
	// stream was broken instead.
	Status int `json:"status"`
	// Answered is when the answer's header had arrived at the proxy, before the client
	// could tell. It is zero without an answer of the server.
	Answered time.Time `json:"answered,omitzero"`
	// Done is set when the answer is complete or lost.
	Done bool `json:"done"`
	// Rules are the IDs of the rules that fired.
	Rules []string `json:"rules,omitempty"`
	// Spoilt is the kind of the answer that a rule gave.
	Spoilt SpoiltAnswer `json:"spoilt,omitempty"`
}

// Mutates reports whether the request asks for a change. Reviews, which are
// created and never stored, count as reads.
func (r Request) Mutates() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !IsReview(r.Group)
	}
	return false
}

// IsReview reports whether all that is created in an API group are questions.
func IsReview(group string) bool {
	return group == "authorization.k8s.io" || group == "authentication.k8s.io"
}

// Kubeconfig asks for the kubeconfig of a user.
type Kubeconfig struct {
	// User and Groups become a client certificate. An empty User is the
	// administrator.
	User   string   `json:"user,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// ServiceAccount is namespace/name; its token is valid for a year.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Proxy is the ID of the proxy to go through; empty goes straight.
	Proxy string `json:"proxy,omitempty"`
}

// File is a file that is asked for, or that an answer names.
type File struct {
	Path string `json:"path"`
}
