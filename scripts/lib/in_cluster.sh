# shellcheck shell=bash disable=SC2154 # the caller's variables
# For scripts/quickstart --pods: Convoke installed as users install it, in a pod of the local cluster with a node.
# Needs common.sh, and from the caller $operator_namespace and $namespace.

# In the cluster the registry has this name; for this machine it is an address.
REGISTRY_NAME=registry.$operator_namespace.svc:5000

# A model that pods reach, and where the example repository names one that is made up.
MODEL_URL=http://scripted-model.$operator_namespace.svc:8000/v1
MODEL_FILE=models/shared-model.yaml
TOOLS_FILE=agents/researcher.yaml

# What the example's image is built on, and where the example says so. By tag: the repository outlives the cluster, and the digest
# may not.
BASE_IMAGE=$REGISTRY_NAME/python:local
BUILD_FILE=builds/reviewer.yaml

# ready_field NAME: one of what the local cluster said when it was ready.
ready_field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$STATE/cluster/ready" "$1"; }

# Builds the images that are missing and pushes them; sets image[NAME] to references by digest.
images=(convoke agent proxy python node packages)
declare -A image=()
# How the operator comes to its rights. Tests have namespaces that give them.
operator_options=(--single-tenant)
provide_images() {
	step "images: ${images[*]}"
	local name reference
	# In the foreground, so that Ctrl-C reaches the builders.
	"$ROOT/scripts/images" push "${images[@]}" >"$STATE/images.out" || die "the images were not built, see above" 3
	while IFS='=' read -r name reference; do
		image[$name]=$reference
	done <"$STATE/images.out"
}

# Applies deploy/ with the image and the options of this cluster.
install_operator() {
	local folder=$STATE/install name=${image[convoke]%@*} arguments
	arguments=$(printf '      - %s\n' operator --controllers=all --allow-insecure-git --leader-elect=false "${operator_options[@]}" \
		"--internal-registry=$REGISTRY_NAME" "--default-agent-image=${image[agent]}" \
		"--default-proxy-image=${image[proxy]}" "--default-python-image=${image[python]}" \
		"--default-node-image=${image[node]}" "--npm-registry=http://packages.$operator_namespace.svc:8080/npm" \
		"--pypi-index=http://packages.$operator_namespace.svc:8080/simple/")
	mkdir -p "$folder"
	cat >"$folder/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(realpath --relative-to="$(realpath "$folder")" "$ROOT/deploy")
images:
- name: ghcr.io/convoke-dev/convoke
  newName: $name
  digest: ${image[convoke]#*@}
patches:
- target: {kind: Deployment, name: convoke}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/args
      value:
$arguments
YAML
	[[ -z ${image[builder]:-} ]] || use_local_builder >>"$folder/kustomization.yaml"
	kubectl apply --server-side --force-conflicts --kustomize "$folder" >/dev/null
	[[ ${operator_options[*]} != *--single-tenant* ]] ||
		kubectl apply --server-side --force-conflicts -f "$ROOT/deploy/single-tenant.yaml" >/dev/null
	sed "s|IMAGE\$|${image[packages]}|" "$ROOT/scripts/lib/images/packages/packages.yaml" |
		kubectl apply --server-side --force-conflicts -f - >/dev/null
	apply_scripted_model
	local crds
	mapfile -t crds < <(kubectl get crds -o name | grep '\.convoke\.dev$')
	kubectl wait --for=condition=Established --timeout=30s "${crds[@]}" >/dev/null
}

# The shipped template takes Git and buildah from the internet: prints the patch that takes them from the cluster's registry.
use_local_builder() {
	local builder=$REGISTRY_NAME/${image[builder]#*/} template
	template=$(sed -n '/^  template\.json: |$/,$ { /^  template/d; s|"value": "[^"]*"|"value": "'"$builder"'"|; s/^/    /; p }' \
		"$ROOT/deploy/pipelines/template-dev.yaml")
	[[ $template == *"$builder"* ]] || die "deploy/pipelines/template-dev.yaml has no images to replace"
	cat <<YAML
- target: {kind: ConfigMap, name: pipeline-template-dev}
  patch: |-
    - op: replace
      path: /data/template.json
      value: |
$template
YAML
}

# The model that says what a script tells it to.
apply_scripted_model() {
	local program=$ROOT/runtime/tests/scripted_model.py script=$ROOT/scripts/lib/scripted_model.json hash
	hash=$(cat "$program" "$script" | sha256sum | cut -c1-12)
	kubectl create configmap scripted-model --namespace "$operator_namespace" --from-file=scripted_model.py="$program" \
		--from-file=script.json="$script" --dry-run=client -o json | kubectl apply --server-side --force-conflicts -f - >/dev/null
	sed -e "s|IMAGE\$|${image[python]}|" -e "s|SCRIPT\$|\"$hash\"|" "$ROOT/scripts/lib/scripted_model.yaml" |
		kubectl apply --server-side --force-conflicts -f - >/dev/null
}

# use_scripted_model FOLDER: the agents of a new repository ask it, and the one that is asked has a tool.
use_scripted_model() {
	local file=$1/$MODEL_FILE tools=$1/$TOOLS_FILE
	sed -i "s|^    url: https://models\.example\.com/v1\$|    # The scripted model of the quick start.\n    url: $MODEL_URL|" "$file"
	grep -q "$MODEL_URL" "$file" || die "examples-repo/$sync_path/$MODEL_FILE has no address to replace"
	sed -i 's|^  # mcpServers:$|  mcpServers:|; s|^  #   - web-search$|    # For the scripted model of the quick start.\n    - text-tools|' "$tools"
	grep -q '^    - text-tools$' "$tools" || die "examples-repo/$sync_path/$TOOLS_FILE has no tools to replace"
}

# use_local_registry FOLDER: the image of a new repository is built on one that the cluster has, and pushed without TLS.
use_local_registry() {
	local file=$1/$BUILD_FILE
	sed -i "s|^    baseImage: .*|    # Of the quick start's own registry.\n    baseImage: $BASE_IMAGE|; /^    # For a registry without TLS:\$/d" "$file"
	sed -i 's|^    # insecure: true$|    # It has no TLS.\n    insecure: true|' "$file"
	if ! grep -q "$BASE_IMAGE\$" "$file" || ! grep -q '^    insecure: true$' "$file"; then
		die "examples-repo/$sync_path/$BUILD_FILE has no base image and no registry to replace"
	fi
}

# Waits until the example's image is built and its agent runs it; sets $built to what one sees, or $unbuilt to why there is nothing to
# see. A repository of an earlier start may have another base image, which nobody here has: nobody waits then.
built="" unbuilt=""
build_is_run() {
	local base
	base=$(kubectl get agentbuild reviewer --namespace "$namespace" --ignore-not-found -o 'jsonpath={.spec.append.baseImage}')
	if [[ $base != "$BASE_IMAGE" ]]; then
		unbuilt="No build is waited for: AgentBuild reviewer of this repository has another base image than $BASE_IMAGE. To begin anew, delete $STATE/work and $STATE/remote.git."
		return
	fi
	step "waiting for the image of the agent reviewer"
	if ! kubectl wait --for=condition=Ready agentbuild/reviewer --namespace "$namespace" --timeout="$1s" >/dev/null ||
		! kubectl wait --for=condition=Ready agent/reviewer --namespace "$namespace" --timeout="$1s" >/dev/null; then
		kubectl get agentbuilds,agents,pipelineruns,pods --namespace "$namespace" >&2 || true
		kubectl get agentbuild reviewer --namespace "$namespace" -o yaml | sed -n '/^status:/,$p' >&2 || true
		die "no image was built and run within $1 s" 3
	fi
	built=$(kubectl get agentbuild/reviewer agent/reviewer --namespace "$namespace")
}

# Asks agents of the example; sets $conversation to what one sees, or $unasked to why there is nothing to see. A repository of
# an earlier start may have another model: nobody is asked then.
conversation="" unasked=""
ask_agents() {
	local url
	url=$(kubectl get modelapi shared-model --namespace "$namespace" --ignore-not-found -o 'jsonpath={.spec.external.url}')
	if [[ $url != "$MODEL_URL" ]]; then
		unasked="No agent was asked: ModelAPI shared-model of this repository has another address than the scripted model, $MODEL_URL."
		return
	fi
	step "asking agents"
	kubectl rollout status --namespace "$operator_namespace" deployment/scripted-model --timeout=90s >/dev/null ||
		die "the scripted model did not become ready within 90 s" 3
	ask_agent researcher "Does it work?"
	[[ -z $built || -n $unasked ]] || ask_agent reviewer "Trains are fast."
}

# ask_agent NAME QUESTION: adds to the conversation.
ask_agent() {
	local said
	if said=$("$convoke" ask --namespace "$namespace" "agent/$1" "$2" 2>&1); then
		printf -v conversation '%sconvoke ask agent/%s "%s"\n%s\n' "${conversation:+$conversation
}" "$1" "$2" "$said"
	else
		unasked="Agent $1 gave no answer: $said"
	fi
}

show_conversation() {
	[[ -z $unasked ]] || printf '\n%s\n' "$unasked"
	[[ -n $conversation ]] || return 0
	printf '\n%s\n\n' "Agents were asked. Their model is a script, scripts/lib/scripted_model.json:"
	indented <<<"${conversation%$'\n'}"
}

# Each line of the input, as part of a text.
indented() { sed 's/^./  &/'; }

# What was built, and how one sees it built again.
show_build() {
	if [[ -z $built ]]; then
		printf '\n%s\n' "$unbuilt"
		return
	fi
	printf '\n%s\n\n' "An image was built from images/reviewer of the repository, and its agent runs that digest:"
	indented <<<"$built"
	cat <<NEXT

Change the folder, and see another digest run:

  echo '- Ask for a source of every number.' >> images/reviewer/rules.md
  git commit -am 'reviewer: numbers need a source' && git push
  kubectl get agentbuilds -w
  convoke trace agent/reviewer
  convoke ask agent/reviewer "Trains are fast."
NEXT
}

# The example's ModelAPI `openai` reads its provider's key from a Secret of the team. This one is no key: the provider refuses it.
provide_secret() {
	kubectl create secret generic openai-key --namespace "$namespace" --from-literal=api-key=none --dry-run=client -o json |
		kubectl apply --server-side -f - >/dev/null
	# Pods read no other.
	kubectl label --overwrite --namespace "$namespace" secret/openai-key convoke.dev/agents=allow >/dev/null
}

# Waits until the operator's pod is ready, and says why it is not.
operator_is_ready() {
	kubectl rollout status --namespace "$operator_namespace" deployment/convoke --timeout=90s >/dev/null && return
	kubectl get pods --namespace "$operator_namespace" --output wide >&2 || true
	operator_log >&2
	die "the operator's pod did not become ready within 90 s" 3
}

operator_log() { kubectl logs --namespace "$operator_namespace" deployment/convoke --tail=30; }

# Waits until all agents are Ready, and says which are not. Those of builds wait for their images, as long as that takes.
agents_are_ready() {
	local agents=()
	mapfile -t agents < <(kubectl get agents --namespace "$namespace" \
		-o go-template='{{range .items}}{{if not .spec.buildRef}}{{printf "agent/%s\n" .metadata.name}}{{end}}{{end}}')
	((${#agents[@]})) || return 0
	kubectl wait --for=condition=Ready "${agents[@]}" --namespace "$namespace" --timeout="$1s" >/dev/null 2>&1 && return
	kubectl get agents,modelapis,mcpservers,pods --namespace "$namespace" >&2
	die "not all agents became Ready within $1 s" 3
}
